//! Layouts of a MIG GPU: which placements can stand together, and what each choice leaves open.
//!
//! Pure: nothing here knows a GPU model. Profiles and placements come from NVML through `node`.

/// A kind of slice on one GPU, as NVML describes it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Profile {
    /// NVML's profile id: what Create takes; means nothing without the GPU.
    pub id: u32,
    /// Name as the driver prints it, without a leading `MIG `: `1g.5gb+me`.
    pub name: String,
    /// Compute slices.
    pub compute: u32,
    /// Streaming multiprocessors.
    pub sms: u32,
    /// Memory in bytes, by NVML's MiB figure.
    pub memory: u64,
    /// Most instances of it on one GPU.
    pub count: u32,
    /// Copy engines, decoders, encoders, JPEG and OFA engines that one instance takes.
    pub engines: [u32; 5],
    /// Legal places.
    pub placements: Vec<Placement>,
}

/// Where an instance sits on the memory grid, in memory slices.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct Placement {
    /// First unit.
    pub start: u32,
    /// Units.
    pub size: u32,
}

/// Index of a profile in its [`Table`].
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct ProfileIndex(pub usize);

/// Every state of one GPU, with what can still be reached from it.
#[derive(Debug)]
pub struct Table;
