//! Graphs: nodes and what each waits for; executable graphs: the same in an order in which they can run. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::code::{Answer, Code};
use crate::fills::Fill;
use crate::gate::Host;
use crate::graph_memory::Step;
use crate::handle::Handle;
use crate::player::HostCall;
use crate::timeline::{EventId, Ticket};
use crate::transfer::Transfer;

/// A kernel's part of the hardware, and seconds with all of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    pub(crate) sms: u32,
    pub(crate) seconds: f64,
}

/// What a node does.
#[derive(Clone, Debug)]
pub(crate) enum NodeWork {
    Kernel(Kernel),
    Copy(Transfer),
    Fill(Fill),
    Call(HostCall),
    Empty,
    /// Another graph's nodes, in their order.
    Graph(Arc<[NodeWork]>),
    Record(EventId),
    WaitFor(EventId),
    Allocate(u64),
    Free(u64),
}

impl NodeWork {
    /// `CUgraphNodeType`
    pub(crate) fn kind(&self) -> i32 {
        match self {
            Self::Kernel(_) => 0,
            Self::Copy(_) => 1,
            Self::Fill(_) => 2,
            Self::Call(_) => 3,
            Self::Graph(_) => 4,
            Self::Empty => 5,
            Self::WaitFor(_) => 6,
            Self::Record(_) => 7,
            Self::Allocate(_) => 10,
            Self::Free(_) => 11,
        }
    }

    /// What it does to the memory of graphs.
    pub(crate) fn step(&self) -> Option<Step> {
        match self {
            Self::Allocate(address) => Some(Step::Allocate(*address)),
            Self::Free(address) => Some(Step::Free(*address)),
            _ => None,
        }
    }
}

#[derive(Clone, Debug)]
struct Node {
    work: NodeWork,
    after: BTreeSet<Handle>,
}

/// A graph; nodes in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    nodes: BTreeMap<Handle, Node>,
    /// Executable graphs made of it that are not destroyed.
    pub(crate) executables: usize,
}

impl Graph {
    /// Adds a node behind others of the same graph. Handles rise, so the order of handles is that of addition.
    pub(crate) fn add(&mut self, handle: Handle, work: NodeWork, after: &[Handle]) -> Answer {
        let after: BTreeSet<_> = after.iter().copied().collect();
        if !after.iter().all(|one| self.nodes.contains_key(one)) {
            return Err(Code::INVALID_VALUE);
        }
        self.nodes.insert(handle, Node { work, after });
        Ok(())
    }

    /// One node is to wait for another; a circle is refused.
    pub(crate) fn add_dependency(&mut self, from: Handle, to: Handle) -> Answer {
        let known = self.nodes.contains_key(&from) && self.nodes.contains_key(&to);
        if !known || self.is_ancestor(to, from) {
            return Err(Code::INVALID_VALUE);
        }
        let node = self.nodes.get_mut(&to).ok_or(Code::INVALID_VALUE)?;
        if node.after.insert(from) {
            Ok(())
        } else {
            Err(Code::INVALID_VALUE)
        }
    }

    /// Whether `node` must be done before `other` starts, or is the same.
    pub(crate) fn is_ancestor(&self, node: Handle, other: Handle) -> bool {
        let mut open = vec![other];
        let mut seen = BTreeSet::new();
        while let Some(next) = open.pop() {
            if next == node {
                return true;
            }
            if seen.insert(next) {
                open.extend(self.nodes.get(&next).into_iter().flat_map(|node| &node.after));
            }
        }
        false
    }

    pub(crate) fn work(&self, node: Handle) -> Option<&NodeWork> {
        self.nodes.get(&node).map(|node| &node.work)
    }

    pub(crate) fn handles(&self) -> impl Iterator<Item = Handle> + '_ {
        self.nodes.keys().copied()
    }

    /// Nodes that wait for nothing.
    pub(crate) fn roots(&self) -> impl Iterator<Item = Handle> + '_ {
        let roots = self.nodes.iter().filter(|(_, node)| node.after.is_empty());
        roots.map(|(&handle, _)| handle)
    }

    /// The nodes that a node waits for.
    pub(crate) fn dependencies(&self, node: Handle) -> Answer<impl Iterator<Item = Handle> + '_> {
        let node = self.nodes.get(&node).ok_or(Code::INVALID_VALUE)?;
        Ok(node.after.iter().copied())
    }

    /// Addresses of its allocation nodes.
    pub(crate) fn allocations(&self) -> impl Iterator<Item = u64> + '_ {
        self.nodes.values().filter_map(|node| match node.work {
            NodeWork::Allocate(address) => Some(address),
            _ => None,
        })
    }

    /// Whether any node allocates or frees.
    pub(crate) fn has_memory_nodes(&self) -> bool {
        self.nodes.values().any(|node| node.work.step().is_some())
    }

    /// The work of all nodes, each behind those it waits for; of several that could be next the oldest.
    pub(crate) fn ordered(&self) -> Arc<[NodeWork]> {
        let mut done = BTreeSet::new();
        let mut works = Vec::new();
        while done.len() < self.nodes.len() {
            let ready = self
                .nodes
                .iter()
                .find(|(handle, node)| !done.contains(*handle) && node.after.is_subset(&done));
            // There is always one: dependencies form no circle.
            let Some((&handle, node)) = ready else { break };
            done.insert(handle);
            works.push(node.work.clone());
        }
        works.into()
    }
}

/// An executable graph.
#[derive(Debug)]
pub(crate) struct Executable {
    pub(crate) graph: Handle,
    pub(crate) flags: u64,
    pub(crate) works: Arc<[NodeWork]>,
    /// The end of its last launch, and the bytes of graph memory that it needs on each device until then.
    pub(crate) launched: Option<Ticket>,
    pub(crate) needs: Vec<u64>,
}

impl Executable {
    /// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`
    const AUTO_FREE: u64 = 1;

    pub(crate) fn frees_on_launch(&self) -> bool {
        self.flags & Self::AUTO_FREE != 0
    }

    pub(crate) fn allocations(&self) -> impl Iterator<Item = u64> + '_ {
        self.works.iter().filter_map(|work| match work {
            NodeWork::Allocate(address) => Some(*address),
            _ => None,
        })
    }

    /// Whether another graph's nodes could take the place of its own: the same kinds in the same order.
    pub(crate) fn is_like(&self, works: &[NodeWork]) -> bool {
        let kinds = |works: &[NodeWork]| works.iter().map(NodeWork::kind).collect::<Vec<_>>();
        kinds(&self.works) == kinds(works)
    }
}

/// The graphs of this process.
#[derive(Debug, Default)]
pub(crate) struct Graphs {
    pub(crate) graphs: BTreeMap<Handle, Graph>,
    pub(crate) executables: BTreeMap<Handle, Executable>,
}

impl Graphs {
    pub(crate) fn get(&mut self, graph: Handle) -> Answer<&mut Graph> {
        self.graphs.get_mut(&graph).ok_or(Code::INVALID_VALUE)
    }

    pub(crate) fn executable(&mut self, executable: Handle) -> Answer<&mut Executable> {
        self.executables.get_mut(&executable).ok_or(Code::INVALID_VALUE)
    }

    /// The graph that a node is in.
    pub(crate) fn of_node(&self, node: Handle) -> Answer<&Graph> {
        let has = |graph: &&Graph| graph.work(node).is_some();
        self.graphs.values().find(has).ok_or(Code::INVALID_VALUE)
    }
}

/// What a host function's argument is to a graph: handed back as it is.
pub(crate) fn call(function: extern "C" fn(*mut std::ffi::c_void), data: Host) -> NodeWork {
    NodeWork::Call(HostCall::Function {
        function,
        data: crate::player::UserData(data.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph() -> Graph {
        let mut graph = Graph::default();
        graph.add(16, NodeWork::Allocate(5), &[]).unwrap();
        graph.add(32, NodeWork::Empty, &[]).unwrap();
        graph.add(48, NodeWork::Free(5), &[16, 32]).unwrap();
        graph
    }

    #[test]
    fn nodes_run_behind_what_they_wait_for() {
        let mut graph = graph();
        graph.add_dependency(32, 16).unwrap();
        let kinds: Vec<_> = graph.ordered().iter().map(NodeWork::kind).collect();
        assert_eq!(kinds, [5, 10, 11]);
        assert_eq!(graph.roots().collect::<Vec<_>>(), [32]);
    }

    #[test]
    fn a_circle_is_refused() {
        let mut graph = graph();
        assert_eq!(graph.add_dependency(48, 16), Err(Code::INVALID_VALUE));
        assert_eq!(graph.add_dependency(16, 16), Err(Code::INVALID_VALUE));
        assert_eq!(
            graph.add_dependency(16, 48),
            Err(Code::INVALID_VALUE),
            "it is there"
        );
        assert_eq!(graph.add(64, NodeWork::Empty, &[99]), Err(Code::INVALID_VALUE));
    }
}
