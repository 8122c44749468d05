// The function that wrapper.c wraps; as a library.
int answer(void) { return 41; }
