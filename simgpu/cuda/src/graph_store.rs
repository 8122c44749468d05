//! The memory of graphs in the state of this process: addresses, and what the slice is charged.

use crate::blocks::BLOCK;
use crate::code::{Answer, Code};
use crate::graph_memory::Step;
use crate::graphs::NodeWork;
use crate::handle::Handle;
use crate::state::State;

impl State {
    /// Addresses for an allocation node on a context's device.
    pub(crate) fn new_graph_block(&mut self, context: Handle, bytes: u64) -> Answer<u64> {
        let device = self.context(context)?.device;
        self.new_graph_block_on(device, context, bytes)
    }

    /// The same on a given device.
    pub(crate) fn new_graph_block_on(&mut self, device: usize, context: Handle, bytes: u64) -> Answer<u64> {
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let length = bytes.checked_next_multiple_of(BLOCK).ok_or(Code::OUT_OF_MEMORY)?;
        let address = self.memory.reserve(length, BLOCK, 0);
        let address = address.ok_or(Code::OUT_OF_MEMORY)?;
        self.memory.graphs.add(address, bytes, device, context);
        Ok(address)
    }

    /// One graph less has the node of an address.
    pub(crate) fn drop_graph_block(&mut self, address: u64) {
        if let Some((start, bytes)) = self.memory.graphs.drop_user(address) {
            self.memory.unreserve(start, bytes);
        }
    }

    /// Frees what a graph left live.
    pub(crate) fn free_graph_block(&mut self, address: u64) -> Answer {
        if let Some((start, bytes)) = self.memory.graphs.free(address)? {
            self.memory.unreserve(start, bytes);
        }
        Ok(())
    }

    /// Destroys a graph; executable graphs made of it live on.
    pub(crate) fn drop_graph(&mut self, graph: Handle) -> Answer {
        let graph = self.graphs.graphs.remove(&graph).ok_or(Code::INVALID_VALUE)?;
        for address in graph.allocations().collect::<Vec<_>>() {
            self.drop_graph_block(address);
        }
        Ok(())
    }

    /// A context goes, and with it what graphs left live in it; with the last of a device also what is in reserve.
    pub(crate) fn forget_graphs(&mut self, context: Handle) {
        for address in self.memory.graphs.live_in(context) {
            // It is live: the answer of a free is known.
            let _ = self.free_graph_block(address);
        }
        for device in 0..self.slices.len() {
            if !self.contexts.values().any(|context| context.device == device)
                && let Ok(bytes) = self.memory.graphs.trim(device, 0)
            {
                self.release(device, bytes);
            }
        }
    }

    /// What a launch does to graph memory. A graph that frees on launch frees first what it left live.
    pub(crate) fn launch_steps(&mut self, executable: Handle) -> Answer<Vec<Step>> {
        let executable = self.graphs.executable(executable)?;
        let mut steps = Vec::new();
        if executable.frees_on_launch() {
            let graphs = &self.memory.graphs;
            let is_live = |address: &u64| graphs.block(*address).is_some_and(|block| block.is_live);
            steps.extend(executable.allocations().filter(is_live).map(Step::Free));
        }
        steps.extend(executable.works.iter().filter_map(NodeWork::step));
        Ok(steps)
    }

    /// Charges what the steps need beyond what is in reserve; answers what they need on each device.
    pub(crate) fn reserve_for(&mut self, steps: &[Step]) -> Answer<Vec<u64>> {
        let mut needs = vec![0; self.slices.len()];
        if steps.is_empty() {
            return Ok(needs);
        }
        for (device, need) in needs.iter_mut().enumerate() {
            *need = self.memory.graphs.peak(device, steps)?;
            let reserved = self.memory.graphs.levels(device)?.reserved.current;
            let more = need.saturating_sub(reserved);
            if more > 0 {
                self.slice(device)?
                    .0
                    .charge(more)
                    .map_err(|_| Code::OUT_OF_MEMORY)?;
                self.memory.graphs.levels(device)?.reserved.add(more);
            }
        }
        Ok(needs)
    }
}
