# Cython's view of the generated include/colibri/config.h: the names size C arrays and fold in a plain `if`.
cdef extern from "colibri/config.h" nogil:
    enum:
        CL_MAX_BATCH
        CL_MAX_TOP_K
        CL_MAX_EXPERTS
        CL_CACHE_LINE
        CL_ROUTER_EXP_LUT
        CL_ROUTER_SOFTMAX
