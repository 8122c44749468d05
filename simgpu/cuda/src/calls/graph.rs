//! Graphs: create, add nodes, look at them.

use std::ffi::{c_int, c_uint};

use crate::abi::{
    AllocationNode, CallNode, Copy3d, CopyNode, FillNode, KernelNode, KernelNodeV2, LOCATION_DEVICE, NodeHead,
};
use crate::code::{Answer, Code};
use crate::contexts::current;
use crate::fills::{Extent, Fill};
use crate::gate::{Host, In, Out, entries};
use crate::graphs::{self, Graph, NodeWork};
use crate::handle::Handle;
use crate::process::Process;
use crate::transfer::{Region, Transfer};

use super::launch::Launch;
use super::pool::PINNED;

entries! {
    fn cuGraphCreate(graph: Out<Handle>, flags: c_uint) {
        let process = Process::get()?;
        if graph.is_null() || flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let mut state = process.state();
        let handle = state.handles.next();
        state.graphs.graphs.insert(handle, Graph::default());
        graph.put(handle)
    }

    fn cuGraphDestroy(graph: Handle) { Process::get()?.state().drop_graph(graph) }

    /// Graphs with memory nodes cannot be cloned, as documented.
    fn cuGraphClone(clone: Out<Handle>, graph: Handle) {
        let process = Process::get()?;
        let mut state = process.state();
        let mut copy = state.graphs.get(graph)?.clone();
        if copy.has_memory_nodes() {
            return Err(Code::NOT_SUPPORTED);
        }
        copy.executables = 0;
        let handle = state.handles.next();
        // Its nodes have handles of their own.
        let mut renamed = Graph::default();
        let mut names = std::collections::BTreeMap::new();
        for node in copy.handles().collect::<Vec<_>>() {
            let name = state.handles.next();
            names.insert(node, name);
            let after: Vec<_> = copy.dependencies(node)?.filter_map(|one| names.get(&one).copied()).collect();
            let work = copy.work(node).cloned().ok_or(Code::INVALID_VALUE)?;
            renamed.add(name, work, &after)?;
        }
        state.graphs.graphs.insert(handle, renamed);
        clone.put(handle)
    }

    fn cuGraphAddEmptyNode(node: Out<Handle>, graph: Handle, after: In<Handle>, count: usize) {
        add(node, graph, (after, count), |_, _| Ok(NodeWork::Empty))
    }

    fn cuGraphAddKernelNode(
        node: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, kernel: In<KernelNode>,
    ) {
        let kernel = kernel.get()?;
        add(node, graph, (after, count), |process, context| {
            kernel_work(process, context, KernelNodeV2 { first: kernel, kernel: 0, context: 0 })
        })
    }

    fn cuGraphAddKernelNode_v2(
        node: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, kernel: In<KernelNodeV2>,
    ) {
        let kernel = kernel.get()?;
        add(node, graph, (after, count), |process, context| kernel_work(process, context, kernel))
    }

    fn cuGraphAddMemcpyNode(
        node: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, copy: In<Copy3d>, context: Handle,
    ) {
        let copy = copy.get()?;
        add_in(context, node, graph, (after, count), |process, _| copy_work(process, copy))
    }

    fn cuGraphAddMemsetNode(
        node: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, fill: In<FillNode>, context: Handle,
    ) {
        let fill = fill.get()?;
        add_in(context, node, graph, (after, count), |process, _| fill_work(process, fill))
    }

    fn cuGraphAddHostNode(
        node: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, call: In<CallNode>,
    ) {
        let call = call.get()?;
        add(node, graph, (after, count), |_, _| call_work(call))
    }

    fn cuGraphAddChildGraphNode(
        node: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, child: Handle,
    ) {
        add(node, graph, (after, count), |process, _| child_work(process, child))
    }

    fn cuGraphAddEventRecordNode(
        node: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, event: Handle,
    ) {
        add(node, graph, (after, count), |process, _| {
            let id = process.state().events.get(&event).ok_or(Code::INVALID_HANDLE)?.id;
            Ok(NodeWork::Record(id))
        })
    }

    fn cuGraphAddEventWaitNode(
        node: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, event: Handle,
    ) {
        add(node, graph, (after, count), |process, _| {
            let id = process.state().events.get(&event).ok_or(Code::INVALID_HANDLE)?.id;
            Ok(NodeWork::WaitFor(id))
        })
    }

    fn cuGraphAddMemAllocNode(
        node: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, allocation: Out<AllocationNode>,
    ) {
        add_allocation(node, graph, (after, count), allocation)
    }

    fn cuGraphAddMemFreeNode(
        node: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, address: u64,
    ) {
        add(node, graph, (after, count), |process, _| free_work(process, address))
    }

    fn cuGraphAddNode(
        node: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, parameters: Out<NodeHead>,
    ) {
        add_any(node, graph, (after, count), parameters)
    }

    /// Edges carry ports and kinds: others than the plain ones are for programmatic launches, which are not modelled.
    fn cuGraphAddNode_v2(
        node: Out<Handle>, graph: Handle, after: In<Handle>, edges: In<u64>, count: usize,
        parameters: Out<NodeHead>,
    ) {
        check_edges(edges, count)?;
        add_any(node, graph, (after, count), parameters)
    }

    fn cuGraphAddDependencies(graph: Handle, from: In<Handle>, to: In<Handle>, count: usize) {
        depend(graph, from, to, count)
    }

    fn cuGraphAddDependencies_v2(
        graph: Handle, from: In<Handle>, to: In<Handle>, edges: In<u64>, count: usize,
    ) {
        check_edges(edges, count)?;
        depend(graph, from, to, count)
    }

    fn cuGraphGetNodes(graph: Handle, nodes: Out<Handle>, count: Out<usize>) {
        let mut state = Process::get()?.state();
        list(state.graphs.get(graph)?.handles(), nodes, count)
    }

    fn cuGraphGetRootNodes(graph: Handle, nodes: Out<Handle>, count: Out<usize>) {
        let mut state = Process::get()?.state();
        list(state.graphs.get(graph)?.roots(), nodes, count)
    }

    fn cuGraphNodeGetDependencies(node: Handle, nodes: Out<Handle>, count: Out<usize>) {
        let state = Process::get()?.state();
        list(state.graphs.of_node(node)?.dependencies(node)?, nodes, count)
    }

    fn cuGraphNodeGetType(node: Handle, kind: Out<c_int>) {
        let state = Process::get()?.state();
        let work = state.graphs.of_node(node)?.work(node).ok_or(Code::INVALID_VALUE)?;
        kind.put(work.kind())
    }

    fn cuGraphMemAllocNodeGetParams(node: Handle, parameters: Out<AllocationNode>) {
        let state = Process::get()?.state();
        let Some(NodeWork::Allocate(address)) = state.graphs.of_node(node)?.work(node) else {
            return Err(Code::INVALID_VALUE);
        };
        let block = state.memory.graphs.block(*address).ok_or(Code::INVALID_VALUE)?;
        let id = c_int::try_from(block.device).unwrap_or(c_int::MAX);
        parameters.put(AllocationNode {
            pool: crate::abi::PoolProperties {
                kind: PINNED,
                handle_types: 0,
                location: crate::abi::Location { kind: LOCATION_DEVICE, id },
                win32: 0,
                max_bytes: 0,
                usage: 0,
                reserved: [0; 54],
            },
            access: 0,
            accesses: 0,
            bytes: block.bytes,
            address: *address,
        })
    }

    fn cuGraphMemFreeNodeGetParams(node: Handle, address: Out<u64>) {
        let state = Process::get()?.state();
        match state.graphs.of_node(node)?.work(node) {
            Some(NodeWork::Free(found)) => address.put(*found),
            _ => Err(Code::INVALID_VALUE),
        }
    }
}

/// The nodes that a new one waits for.
type After = (In<Handle>, usize);

fn add(
    node: Out<Handle>,
    graph: Handle,
    after: After,
    work: impl FnOnce(&'static Process, Handle) -> Answer<NodeWork>,
) -> Answer {
    add_in(0, node, graph, after, work)
}

/// Adds a node; of context 0 the current one is meant.
fn add_in(
    context: Handle,
    node: Out<Handle>,
    graph: Handle,
    (after, count): After,
    work: impl FnOnce(&'static Process, Handle) -> Answer<NodeWork>,
) -> Answer {
    let (process, context) = if context == 0 {
        current()?
    } else {
        let process = Process::get()?;
        process.state().context(context)?;
        (process, context)
    };
    if node.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let after = (0..count)
        .map(|index| after.at(index))
        .collect::<Answer<Vec<_>>>()?;
    process.state().graphs.get(graph)?;
    let work = work(process, context)?;
    let mut state = process.state();
    let handle = state.handles.next();
    let allocated = match work {
        NodeWork::Allocate(address) => Some(address),
        _ => None,
    };
    let added = state
        .graphs
        .get(graph)
        .and_then(|graph| graph.add(handle, work, &after));
    if let (Err(_), Some(address)) = (added, allocated) {
        state.drop_graph_block(address);
    }
    added?;
    node.put(handle)
}

fn kernel_work(process: &Process, context: Handle, kernel: KernelNodeV2) -> Answer<NodeWork> {
    let KernelNode {
        function,
        grid,
        block,
        shared_bytes,
        parameters,
        extra,
    } = kernel.first;
    let context = if kernel.context == 0 {
        context
    } else {
        kernel.context
    };
    let launch = Launch {
        function: if function == 0 { kernel.kernel } else { function },
        grid,
        block,
        shared: shared_bytes,
        has_both: parameters != 0 && extra != 0,
    };
    launch.plan(process, context, context).map(NodeWork::Kernel)
}

fn copy_work(process: &Process, copy: Copy3d) -> Answer<NodeWork> {
    let extent = [copy.width_bytes, copy.height, copy.depth];
    let to = Region::of_3d(copy.destination, extent)?;
    let from = Region::of_3d(copy.source, extent)?;
    Transfer::plan(&process.state(), to, from).map(NodeWork::Copy)
}

fn fill_work(process: &Process, fill: FillNode) -> Answer<NodeWork> {
    if !matches!(fill.element, 1 | 2 | 4) {
        return Err(Code::INVALID_VALUE);
    }
    let extent = Extent {
        element: fill.element as usize,
        width: fill.width,
        rows: fill.height,
        pitch: fill.pitch,
    };
    Fill::plan(process, &process.state(), fill.address, fill.value, extent).map(NodeWork::Fill)
}

fn call_work(call: CallNode) -> Answer<NodeWork> {
    let function = call.function.ok_or(Code::INVALID_VALUE)?;
    Ok(graphs::call(function, Host::from_address(call.data)))
}

/// A child is copied into its node. One that allocates or frees is refused, as documented up to CUDA 12.
fn child_work(process: &Process, child: Handle) -> Answer<NodeWork> {
    let mut state = process.state();
    let child = state.graphs.get(child)?;
    if child.has_memory_nodes() {
        return Err(Code::NOT_SUPPORTED);
    }
    Ok(NodeWork::Graph(child.ordered()))
}

/// A node frees what a node of this or another graph allocates.
fn free_work(process: &Process, address: u64) -> Answer<NodeWork> {
    process
        .state()
        .memory
        .graphs
        .block(address)
        .map(|_| NodeWork::Free(address))
        .ok_or(Code::INVALID_VALUE)
}

fn add_allocation(node: Out<Handle>, graph: Handle, after: After, parameters: Out<AllocationNode>) -> Answer {
    let mut wanted = parameters.as_in().get()?;
    let mut found = 0;
    add(node, graph, after, |process, context| {
        let pool = wanted.pool;
        if pool.kind != PINNED || pool.handle_types != 0 || pool.location.kind != LOCATION_DEVICE {
            return Err(Code::INVALID_VALUE);
        }
        let (device, _) = process.device(pool.location.id)?;
        let mut state = process.state();
        if state.context(context)?.device != device {
            // The process may have no memory of that device at all.
            state.slice(device)?;
        }
        found = state.new_graph_block_on(device, context, wanted.bytes)?;
        Ok(NodeWork::Allocate(found))
    })?;
    wanted.address = found;
    parameters.put(wanted)
}

/// `CUgraphNodeParams`: a kind, and behind 16 bytes what the call for that kind takes.
fn add_any(node: Out<Handle>, graph: Handle, after: After, parameters: Out<NodeHead>) -> Answer {
    let kind = parameters.as_in().get()?.kind;
    let body = parameters.at(1);
    match kind {
        0 => {
            let kernel = body.cast::<KernelNodeV2>().as_in().get()?;
            add(node, graph, after, |process, context| {
                kernel_work(process, context, kernel)
            })
        }
        1 => {
            let copy = body.cast::<CopyNode>().as_in().get()?;
            add_in(copy.context, node, graph, after, |process, _| {
                copy_work(process, copy.copy)
            })
        }
        2 => {
            let fill = body.cast::<FillNode>().as_in().get()?;
            add(node, graph, after, |process, _| fill_work(process, fill))
        }
        3 => {
            let call = body.cast::<CallNode>().as_in().get()?;
            add(node, graph, after, |_, _| call_work(call))
        }
        4 => {
            let child = body.cast::<Handle>().as_in().get()?;
            add(node, graph, after, |process, _| child_work(process, child))
        }
        5 => add(node, graph, after, |_, _| Ok(NodeWork::Empty)),
        10 => add_allocation(node, graph, after, body.cast()),
        11 => {
            let address = body.cast::<u64>().as_in().get()?;
            add(node, graph, after, |process, _| free_work(process, address))
        }
        6..=9 | 12 | 13 => Err(Code::NOT_SUPPORTED),
        _ => Err(Code::INVALID_VALUE),
    }
}

fn check_edges(edges: In<u64>, count: usize) -> Answer {
    if edges.is_null() {
        return Ok(());
    }
    for index in 0..count {
        if edges.at(index)? != 0 {
            return Err(Code::NOT_SUPPORTED);
        }
    }
    Ok(())
}

fn depend(graph: Handle, from: In<Handle>, to: In<Handle>, count: usize) -> Answer {
    let mut state = Process::get()?.state();
    let graph = state.graphs.get(graph)?;
    for index in 0..count {
        graph.add_dependency(from.at(index)?, to.at(index)?)?;
    }
    Ok(())
}

/// Answers how many there are; if the program gave an array, as many as it has room for, and zeros behind them.
fn list(found: impl Iterator<Item = Handle>, nodes: Out<Handle>, count: Out<usize>) -> Answer {
    let found: Vec<_> = found.collect();
    if nodes.is_null() {
        return count.put(found.len());
    }
    let room = count.as_in().get()?;
    for index in 0..room {
        nodes.at(index).put(found.get(index).copied().unwrap_or(0))?;
    }
    count.put(found.len().min(room))
}
