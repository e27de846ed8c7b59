#define NODE 1
