//! Graphs and stream capture.

use crate::bench::{MIB, on_slice, role};
use crate::calls::*;
use crate::{call, good};

const GLOBAL: i32 = 0;
const THREAD_LOCAL: i32 = 1;
const RELAXED: i32 = 2;
const UNSUPPORTED: i32 = 900;
const INVALIDATED: i32 = 901;
const MERGE: i32 = 902;
const UNMATCHED: i32 = 903;
const UNJOINED: i32 = 904;
const ISOLATION: i32 = 905;
const IMPLICIT: i32 = 906;
const CAPTURED_EVENT: i32 = 907;
const WRONG_THREAD: i32 = 908;

/// `CUDA_MEM_ALLOC_NODE_PARAMS`
#[repr(C)]
struct Allocation {
    kind: i32,
    handles: i32,
    location: [i32; 2],
    rest: [u64; 9],
    access: u64,
    accesses: u64,
    bytes: u64,
    address: u64,
}

impl Allocation {
    fn of(bytes: u64) -> Self {
        Self {
            kind: 1,
            handles: 0,
            location: [1, 0],
            rest: [0; 9],
            access: 0,
            accesses: 0,
            bytes,
            address: 0,
        }
    }
}

fn graph_memory(driver: &Driver) -> [u64; 4] {
    [0, 1, 2, 3].map(|attribute| {
        let mut value = 0_u64;
        good!(driver, cuDeviceGetGraphMemAttribute, 0, attribute, &mut value);
        value
    })
}

fn status(driver: &Driver, stream: u64) -> i32 {
    let mut status = 9_i32;
    good!(driver, cuStreamIsCapturing, stream, &mut status);
    status
}

#[test]
fn graph_memory_is_charged_at_launch_and_kept_until_a_trim() {
    if role().is_none() {
        return on_slice(0.05);
    }
    let driver = Driver::with_context();
    let (stream, start) = (driver.stream(0), driver.free_bytes());
    let charged = || start - driver.free_bytes();
    let (mut graph, mut first, mut second, mut free, mut executable) = (0_u64, 0_u64, 0_u64, 0_u64, 0_u64);
    good!(driver, cuGraphCreate, &mut graph, 0);
    let (mut left, mut inner) = (Allocation::of(3 * MIB), Allocation::of(10 * MIB));
    good!(
        driver,
        cuGraphAddMemAllocNode,
        &mut first,
        graph,
        0_u64,
        0_u64,
        &mut left
    );
    good!(
        driver,
        cuGraphAddMemAllocNode,
        &mut second,
        graph,
        &first,
        1_u64,
        &mut inner
    );
    good!(
        driver,
        cuGraphAddMemFreeNode,
        &mut free,
        graph,
        &second,
        1_u64,
        inner.address
    );
    let mut kind = 0_i32;
    good!(driver, cuGraphNodeGetType, free, &mut kind);
    assert_eq!(kind, 11);
    good!(driver, cuGraphInstantiateWithFlags, &mut executable, graph, 0_u64);
    let mut again = 0_u64;
    let refused = call!(driver, cuGraphInstantiateWithFlags, &mut again, graph, 0_u64);
    assert_eq!(refused, NOT_SUPPORTED, "one executable at a time");
    assert_eq!(charged(), 0, "nothing has been launched");
    good!(driver, cuGraphLaunch, executable, stream);
    good!(driver, cuStreamSynchronize, stream);
    assert_eq!(charged(), 14 * MIB);
    assert_eq!(graph_memory(&driver), [4 * MIB, 14 * MIB, 14 * MIB, 14 * MIB]);
    good!(driver, cuMemsetD8_v2, left.address, 0, 3 * MIB);
    assert_eq!(
        call!(driver, cuGraphLaunch, executable, stream),
        INVALID_VALUE,
        "its allocation is live"
    );
    good!(driver, cuDeviceGraphMemTrim, 0);
    assert_eq!(charged(), 4 * MIB);
    good!(driver, cuMemFreeAsync, left.address, stream);
    assert_eq!(call!(driver, cuMemFreeAsync, left.address, stream), INVALID_VALUE);
    assert_eq!(charged(), 4 * MIB, "kept for the next launch");
    good!(driver, cuGraphLaunch, executable, stream);
    good!(driver, cuMemFree_v2, left.address);
    good!(driver, cuStreamSynchronize, stream);
    good!(driver, cuGraphExecDestroy, executable);
    good!(driver, cuGraphDestroy, graph);
    good!(driver, cuDeviceGraphMemTrim, 0);
    assert_eq!(charged(), 0);
    good!(driver, cuDeviceSetGraphMemAttribute, 0, 3, &0_u64);
    assert_eq!(graph_memory(&driver)[3], 0);
    assert_eq!(
        call!(driver, cuDeviceSetGraphMemAttribute, 0, 2, &0_u64),
        INVALID_VALUE
    );
}

#[test]
fn a_launch_that_does_not_fit_is_out_of_memory() {
    if role().is_none() {
        return on_slice(0.05);
    }
    let driver = Driver::with_context();
    let (mut graph, mut node, mut executable) = (0_u64, 0_u64, 0_u64);
    good!(driver, cuGraphCreate, &mut graph, 0);
    let before = driver.free_bytes();
    let mut large = Allocation::of(before + 2 * MIB);
    good!(
        driver,
        cuGraphAddMemAllocNode,
        &mut node,
        graph,
        0_u64,
        0_u64,
        &mut large
    );
    good!(driver, cuGraphInstantiateWithFlags, &mut executable, graph, 1_u64);
    assert_eq!(call!(driver, cuGraphLaunch, executable, 0_u64), OUT_OF_MEMORY);
    assert_eq!(driver.free_bytes(), before);
}

#[test]
fn a_captured_stream_becomes_a_graph_and_frees_on_launch_if_told() {
    if role().is_none() {
        return on_slice(0.05);
    }
    let driver = Driver::with_context();
    let (function, stream, start) = (driver.function(c"axpy"), driver.stream(1), driver.free_bytes());
    let (mut address, mut graph, mut executable) = (0_u64, 0_u64, 0_u64);
    let host = [0_u8; 4096];
    good!(driver, cuStreamBeginCapture_v2, stream, GLOBAL);
    assert_eq!(status(&driver, stream), 1);
    good!(driver, cuMemAllocAsync, &mut address, 5 * MIB, stream);
    good!(driver, cuMemsetD8Async, address, 1, 4096_u64, stream);
    driver.launch(function, stream);
    good!(driver, cuMemcpyDtoHAsync_v2, &host, address, 4096_u64, stream);
    assert_eq!(driver.free_bytes(), start);
    let (mut nodes, mut count, mut of) = (0_u64, 0_u64, 0_u64);
    let (mut state, mut id) = (0_i32, 0_u64);
    good!(
        driver,
        cuStreamGetCaptureInfo_v2,
        stream,
        &mut state,
        &mut id,
        &mut of,
        &mut nodes,
        &mut count
    );
    assert_eq!((state, count), (1, 1));
    good!(driver, cuStreamEndCapture, stream, &mut graph);
    assert_eq!((graph, status(&driver, stream)), (of, 0));
    let mut kinds = [0_u64; 8];
    let mut room = 8_u64;
    good!(driver, cuGraphGetNodes, graph, &mut kinds, &mut room);
    assert_eq!(room, 4, "allocation, memset, kernel, copy");
    good!(driver, cuGraphInstantiateWithFlags, &mut executable, graph, 1_u64);
    for _ in 0..3 {
        good!(driver, cuGraphLaunch, executable, stream);
    }
    good!(driver, cuStreamSynchronize, stream);
    assert_eq!(start - driver.free_bytes(), 6 * MIB);
}

#[test]
fn unsafe_calls_spoil_captures_as_the_modes_say() {
    if role().is_none() {
        return on_slice(0.05);
    }
    let driver = Driver::with_context();
    let (stream, mut address, mut graph) = (driver.stream(1), 0_u64, 0_u64);
    let mut pool = 0_u64;
    good!(driver, cuDeviceGetDefaultMemPool, &mut pool, 0);
    let allocate = |address: &mut u64| call!(driver, cuMemAlloc_v2, address, 100_u64);
    for mode in [GLOBAL, THREAD_LOCAL] {
        good!(driver, cuStreamBeginCapture_v2, stream, mode);
        assert_eq!(allocate(&mut address), UNSUPPORTED);
        assert_eq!(status(&driver, stream), 2);
        assert_eq!(
            call!(driver, cuMemsetD8Async, address, 1, 0_u64, stream),
            INVALIDATED
        );
        assert_eq!(call!(driver, cuStreamEndCapture, stream, &mut graph), INVALIDATED);
        assert_eq!((graph, status(&driver, stream)), (0, 0));
    }
    good!(driver, cuStreamBeginCapture_v2, stream, GLOBAL);
    let mut value = 0_u64;
    assert_eq!(
        call!(driver, cuMemPoolGetAttribute, pool, 5, &mut value),
        UNSUPPORTED
    );
    assert_eq!(call!(driver, cuStreamEndCapture, stream, &mut graph), INVALIDATED);
    good!(driver, cuStreamBeginCapture_v2, stream, RELAXED);
    assert_eq!(allocate(&mut address), 0);
    good!(driver, cuStreamEndCapture, stream, &mut graph);
    good!(driver, cuStreamBeginCapture_v2, stream, GLOBAL);
    let mut mode = RELAXED;
    good!(driver, cuThreadExchangeStreamCaptureMode, &mut mode);
    assert_eq!(
        (mode, allocate(&mut address)),
        (GLOBAL, 0),
        "the thread says that it knows"
    );
    good!(driver, cuThreadExchangeStreamCaptureMode, &mut mode);
    good!(driver, cuStreamEndCapture, stream, &mut graph);
    assert_eq!(
        call!(driver, cuStreamBeginCapture_v2, 0_u64, GLOBAL),
        UNSUPPORTED,
        "the legacy stream"
    );
}

#[test]
fn another_threads_call_spoils_a_global_capture_only() {
    if role().is_none() {
        return on_slice(0.05);
    }
    let driver = Driver::with_context();
    let (stream, mut context, mut graph) = (driver.stream(1), 0_u64, 0_u64);
    good!(driver, cuCtxGetCurrent, &mut context);
    for (mode, expected, end) in [(GLOBAL, UNSUPPORTED, INVALIDATED), (THREAD_LOCAL, 0, 0)] {
        good!(driver, cuStreamBeginCapture_v2, stream, mode);
        let other = || {
            good!(driver, cuCtxSetCurrent, context);
            let mut address = 0_u64;
            let answer = call!(driver, cuMemAlloc_v2, &mut address, 100_u64);
            (answer, call!(driver, cuStreamEndCapture, stream, &mut address))
        };
        let answers = std::thread::scope(|scope| scope.spawn(other).join().unwrap());
        assert_eq!(answers, (expected, WRONG_THREAD));
        assert_eq!(call!(driver, cuStreamEndCapture, stream, &mut graph), end);
    }
}

#[test]
fn streams_join_by_events_and_must_be_waited_for() {
    if role().is_none() {
        return on_slice(0.05);
    }
    let driver = Driver::with_context();
    let (first, second, third) = (driver.stream(1), driver.stream(1), driver.stream(1));
    let (function, mut graph) = (driver.function(c"axpy"), 0_u64);
    let begin = |stream: u64| good!(driver, cuStreamBeginCapture_v2, stream, GLOBAL);
    begin(first);
    let fork = driver.record(first);
    good!(driver, cuStreamWaitEvent, second, fork, 0);
    assert_eq!(status(&driver, second), 1);
    driver.launch(function, second);
    assert_eq!(call!(driver, cuStreamEndCapture, second, &mut graph), UNMATCHED);
    assert_eq!(call!(driver, cuStreamEndCapture, first, &mut graph), INVALIDATED);
    begin(first);
    let fork = driver.record(first);
    good!(driver, cuStreamWaitEvent, second, fork, 0);
    driver.launch(function, second);
    assert_eq!(call!(driver, cuStreamEndCapture, first, &mut graph), UNJOINED);
    assert_eq!(status(&driver, second), 0);
    begin(first);
    let fork = driver.record(first);
    good!(driver, cuStreamWaitEvent, second, fork, 0);
    driver.launch(function, second);
    let join = driver.record(second);
    good!(driver, cuStreamWaitEvent, first, join, 0);
    good!(driver, cuStreamEndCapture, first, &mut graph);
    begin(first);
    begin(third);
    let event = driver.record(first);
    assert_eq!(call!(driver, cuStreamWaitEvent, third, event, 0), MERGE);
    assert_eq!(call!(driver, cuEventQuery, event), CAPTURED_EVENT);
    assert_eq!(call!(driver, cuStreamEndCapture, first, &mut graph), INVALIDATED);
    assert_eq!(call!(driver, cuStreamEndCapture, third, &mut graph), INVALIDATED);
    let outside = driver.record(second);
    begin(first);
    assert_eq!(call!(driver, cuStreamWaitEvent, first, outside, 0), ISOLATION);
    assert_eq!(call!(driver, cuStreamEndCapture, first, &mut graph), INVALIDATED);
    let blocking = driver.stream(0);
    begin(blocking);
    assert_eq!(
        call!(driver, cuMemsetD8Async, 0_u64, 0, 0_u64, 0_u64),
        IMPLICIT,
        "the legacy stream would wait for it"
    );
    assert_eq!(
        call!(driver, cuStreamEndCapture, blocking, &mut graph),
        INVALIDATED
    );
    begin(first);
    assert_eq!(call!(driver, cuCtxSynchronize), UNSUPPORTED);
    assert_eq!(call!(driver, cuStreamEndCapture, first, &mut graph), INVALIDATED);
}

#[test]
fn a_capture_ends_with_its_stream() {
    if role().is_none() {
        return on_slice(0.05);
    }
    let driver = Driver::with_context();
    let (stream, mut address, mut graph) = (driver.stream(1), 0_u64, 0_u64);
    good!(driver, cuStreamBeginCapture_v2, stream, GLOBAL);
    good!(driver, cuMemAllocAsync, &mut address, 5 * MIB, stream);
    good!(driver, cuStreamDestroy_v2, stream);
    assert_eq!(
        call!(driver, cuStreamEndCapture, stream, &mut graph),
        INVALID_HANDLE
    );
    // Nothing captures any more.
    good!(driver, cuMemAlloc_v2, &mut address, 100_u64);
    good!(driver, cuMemFree_v2, address);
}

#[test]
fn nodes_of_all_kinds_are_made_by_one_call() {
    if role().is_none() {
        return on_slice(0.05);
    }
    let driver = Driver::with_context();
    let address = driver.allocate(MIB);
    let (mut graph, mut empty, mut node, mut executable) = (0_u64, 0_u64, 0_u64, 0_u64);
    good!(driver, cuGraphCreate, &mut graph, 0);
    good!(driver, cuGraphAddEmptyNode, &mut empty, graph, 0_u64, 0_u64);
    let mut parameters = [0_u64; 32];
    // A memset: kind 2; address, pitch, value and element, width, height.
    parameters[..7].copy_from_slice(&[2, 0, address, 0, 4 << 32, 1024, 1]);
    good!(
        driver,
        cuGraphAddNode_v2,
        &mut node,
        graph,
        &empty,
        0_u64,
        1_u64,
        &mut parameters
    );
    parameters[2] = 0x1234;
    let refused = call!(
        driver,
        cuGraphAddNode,
        &mut node,
        graph,
        0_u64,
        0_u64,
        &mut parameters
    );
    assert_eq!(refused, INVALID_VALUE, "nothing is there");
    // An allocation: kind 10; kind and handle types, location, ..., bytes.
    let mut parameters = [0_u64; 32];
    parameters[..4].copy_from_slice(&[10, 0, 1, 1]);
    parameters[2 + 13] = 2 * MIB;
    good!(
        driver,
        cuGraphAddNode,
        &mut node,
        graph,
        0_u64,
        0_u64,
        &mut parameters
    );
    assert_ne!(parameters[2 + 14], 0);
    assert_eq!(call!(driver, cuGraphClone, &mut node, graph), NOT_SUPPORTED);
    good!(
        driver,
        cuGraphInstantiate_v2,
        &mut executable,
        graph,
        0_u64,
        0_u64,
        0_u64
    );
    good!(driver, cuGraphLaunch, executable, 0_u64);
    good!(driver, cuCtxSynchronize);
    assert_eq!(
        call!(driver, cuGraphAddDependencies, graph, &node, &node, 1_u64),
        INVALID_VALUE
    );
}
