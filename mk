W=/work/wt-kern2; NEW=${1:-$W/src/kernels/x86/avx512_attn.c}
F="-std=c11 -D_GNU_SOURCE -O2 -g -ffp-contract=off -fno-math-errno -I$W/src -I$W/include -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mavx2 -mfma -mf16c"
gcc $F -Drm_kernels_init_avx512_attn=old_init -c /tmp/ab/old.c -o /tmp/ab/old.o && gcc $F -Drm_kernels_init_avx512_attn=new_init -c $NEW -o /tmp/ab/new.o && gcc $F /tmp/ab/bench.c /tmp/ab/old.o /tmp/ab/new.o $W/build/libremat.a -lm -lpthread -o /tmp/ab/bench
