// The least ordinary child: a C program that ends at once.
int main(void) { return 0; }
