// The smallest ordinary child: a C program that exits at once.
int main(void) { return 0; }
