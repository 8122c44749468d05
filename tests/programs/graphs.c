// Memory of graphs; argv[1] says where to stop.
#include <string.h>
#include "cuda.h"

int main(int argc, char **argv) {
    const char *stop = argv[1];
    void *stream = &stream, *other = &other, *graph, *node;
    Ptr p, q;
    if (!strcmp(stop, "nodes")) {  // no capture, and no other allocation
        uint64_t bytes = 9000;
        int parameters[2] = {10, 500};
        OK(cuGraphAddMemAllocNode(&node, NULL, NULL, 0, &bytes));
        OK(cuGraphAddNode_v2(&node, NULL, NULL, NULL, 0, parameters));
        OK(cuGraphLaunch(NULL, stream));
        OK(cuStreamSynchronize(stream));
        return 0;
    }
    OK(cuMemAllocAsync(&p, 100, stream));
    OK(cuStreamBeginCapture_v2(stream, 0));
    OK(cuMemAllocAsync(&q, 4000, stream));  // a node
    OK(cuMemFreeAsync(q, stream));
    OK(cuMemAllocAsync(&q, 20, other));  // another stream is not being captured
    OK(cuStreamSynchronize(other));
    OK(cuStreamEndCapture(stream, &graph));  // nothing of ours has spoiled it
    if (!strcmp(stop, "captured")) return 0;
    OK(cuGraphLaunch(graph, stream));
    OK(cuStreamSynchronize(stream));
    if (!strcmp(stop, "launched")) return 0;
    OK(cuGraphLaunch(graph, stream));
    OK(cuStreamSynchronize(stream));
    if (!strcmp(stop, "again")) return 0;
    OK(cuDeviceGraphMemTrim(0));
    return 0;
}
