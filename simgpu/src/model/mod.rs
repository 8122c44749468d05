//! The GPUs that can be simulated: their MIG tables and their constants.
//!
//! The MIG tables are facts from NVIDIA's MIG user guide and from `nvidia-smi mig` transcripts; memory sizes are
//! the MiB that the driver reports, one driver's where drivers differ. A GPU whose placements or sizes no
//! source gives is refused by name: see [`find`].
//!
//! Placements of the `gh200-96gb` are inferred: its profile ids and counts are those of the `h100-80gb`, and the layouts
//! that transcripts show have their instances where that one's would be. Where only ids and counts agree and
//! nobody has shown a layout (B200, GB200, B300, GB300), placements count as unknown.
//!
//! Multiprocessors, clocks and cache are those of NVIDIA's data sheets. Power figures are assumptions, marked so:
//! NVIDIA publishes the board limit only.

mod gpus;
mod tables;

pub use gpus::MODELS;

/// What decides how MIG mode changes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Architecture {
    /// A mode change waits for a GPU reset; the mode survives it.
    Ampere,
    /// A mode change takes place at once.
    Hopper,
    /// As Hopper.
    Blackwell,
}

/// Hardware engines beside the multiprocessors.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Engines {
    /// Copy engines.
    pub copy: u32,
    /// Video decoders.
    pub decoder: u32,
    /// Video encoders.
    pub encoder: u32,
    /// JPEG decoders.
    pub jpeg: u32,
    /// Optical flow accelerators.
    pub ofa: u32,
}

impl Engines {
    const fn new(copy: u32, decoder: u32, encoder: u32, jpeg: u32, ofa: u32) -> Self {
        Self {
            copy,
            decoder,
            encoder,
            jpeg,
            ofa,
        }
    }

    /// The sum of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self::new(
            self.copy + other.copy,
            self.decoder + other.decoder,
            self.encoder + other.encoder,
            self.jpeg + other.jpeg,
            self.ofa + other.ofa,
        )
    }

    /// Whether each count is at most the budget's.
    #[must_use]
    pub const fn within(self, budget: Self) -> bool {
        self.copy <= budget.copy
            && self.decoder <= budget.decoder
            && self.encoder <= budget.encoder
            && self.jpeg <= budget.jpeg
            && self.ofa <= budget.ofa
    }
}

/// A kind of GPU instance.
#[derive(Debug)]
pub struct Profile {
    /// As the driver prints it: `1g.5gb`.
    pub name: &'static str,
    /// What create takes; means nothing without the GPU.
    pub id: u32,
    /// `NVML_GPU_INSTANCE_PROFILE_*`: what a look-up takes.
    pub question: u32,
    /// Compute slices.
    pub compute: u32,
    /// Units of the placement grid.
    pub size: u32,
    /// How many fit at most.
    pub count: u32,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// Multiprocessors.
    pub sms: u32,
    /// Engines it gets.
    pub engines: Engines,
    /// Where on the grid it may start.
    pub starts: &'static [u32],
}

impl Profile {
    /// A graphics profile: needs a driver mode (graphics MIG) that is not simulated.
    #[must_use]
    pub fn is_graphics(&self) -> bool {
        self.name.ends_with("+gfx")
    }
}

/// Watts.
#[derive(Clone, Copy, Debug)]
pub struct Power {
    /// With nothing running. Assumed.
    pub idle: f64,
    /// The board limit; drawn with all multiprocessors and the bus busy. NVIDIA's data sheets.
    pub limit: f64,
    /// More while the bus is busy. Assumed.
    pub copy: f64,
}

/// A GPU that can be simulated.
#[derive(Debug)]
pub struct Model {
    /// The name on the command line.
    pub key: &'static str,
    /// The name that the driver gives.
    pub product: &'static str,
    /// PCI device id above vendor id.
    pub pci_id: u32,
    /// The first driver that knows it; `None` where no source says.
    pub min_driver: Option<&'static str>,
    /// See [`Architecture`].
    pub architecture: Architecture,
    /// CUDA compute capability.
    pub capability: (i32, i32),
    /// Multiprocessors with MIG off.
    pub sms: u32,
    /// Units of the placement grid (memory slices).
    pub grid: u32,
    /// Compute slices.
    pub compute_slices: u32,
    /// Whole memory, MiB.
    pub framebuffer_mib: u64,
    /// What the driver keeps of it with MIG off, MiB. Assumed: it varies with driver and board.
    pub reserved_mib: u64,
    /// Highest clock of the multiprocessors, kHz.
    pub clock_khz: u32,
    /// Highest memory clock, kHz.
    pub memory_clock_khz: u32,
    /// Memory bus, bits.
    pub memory_bus_bits: u32,
    /// Second-level cache, bytes.
    pub l2_bytes: u32,
    /// Power.
    pub power: Power,
    /// Bytes per second over the bus, all copies together. Assumed: about 80 % of 16 lanes of PCIe 4 or
    /// 5, or of NVLink-C2C.
    pub bus_bytes_per_second: f64,
    /// All GPU instance profiles.
    pub profiles: &'static [Profile],
}

impl Model {
    /// Most GPU instances at once.
    #[must_use]
    pub fn max_instances(&self) -> u32 {
        self.profiles
            .iter()
            .map(|profile| profile.count)
            .max()
            .unwrap_or(0)
    }

    /// All its engines: those of the profile that takes the whole grid.
    #[must_use]
    pub fn engines(&self) -> Engines {
        self.profiles
            .iter()
            .find(|profile| profile.size == self.grid)
            .map_or(Engines::default(), |profile| profile.engines)
    }

    /// Watts of one busy multiprocessor.
    #[must_use]
    pub fn watts_per_sm(&self) -> f64 {
        (self.power.limit - self.power.idle - self.power.copy) / f64::from(self.sms)
    }
}

/// Why no GPU of that name can be simulated.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// A real GPU, but no source gives what is needed.
    #[error("{missing} of `{key}` are not known; simulated GPUs: {known}", known = known())]
    NotKnown {
        /// The name.
        key: &'static str,
        /// What no source gives.
        missing: &'static str,
    },
    /// No such name.
    #[error("unknown GPU `{0}`; simulated GPUs: {known}", known = known())]
    Unknown(String),
}

fn known() -> String {
    MODELS
        .iter()
        .map(|model| model.key)
        .collect::<Vec<_>>()
        .join(", ")
}

/// The index in [`MODELS`] of the GPU with this name.
pub fn find(key: &str) -> Result<usize, ModelError> {
    if let Some(index) = MODELS.iter().position(|model| model.key == key) {
        return Ok(index);
    }
    Err(NOT_KNOWN.iter().find(|(name, _)| *name == key).map_or_else(
        || ModelError::Unknown(key.to_owned()),
        |&(key, missing)| ModelError::NotKnown { key, missing },
    ))
}

/// GPUs with MIG that lack a source for what a simulation needs.
const NOT_KNOWN: [(&str, &str); 11] = [
    ("b200-180gb", "placements"),
    ("b300-269gb", "placements"),
    ("gb200-186gb", "placements"),
    ("gb300-278gb", "placements"),
    ("gh200-144gb", "placements"),
    ("h100-94gb", "memory sizes"),
    ("h20-141gb", "placements"),
    ("h20-96gb", "placements"),
    ("rtx-pro-4500-blackwell-32gb", "placements"),
    ("rtx-pro-5000-blackwell-48gb", "placements"),
    ("thor-igpu", "placements"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_without_sourced_placements_is_refused_by_name() {
        let text = find("b200-180gb").unwrap_err().to_string();
        assert!(
            text.starts_with("placements of `b200-180gb` are not known"),
            "{text}"
        );
    }

    #[test]
    fn an_unknown_name_lists_the_known() {
        let text = find("A100").unwrap_err().to_string();
        assert!(
            text.starts_with("unknown GPU `A100`; simulated GPUs: a100-40gb, a100-80gb"),
            "{text}"
        );
    }

    #[test]
    fn tables_are_consistent() {
        for model in &MODELS {
            for profile in model.profiles {
                assert!(
                    profile
                        .starts
                        .iter()
                        .all(|start| start + profile.size <= model.grid),
                    "{}",
                    profile.name
                );
                assert!(profile.engines.within(model.engines()), "{}", profile.name);
                assert!(
                    profile.memory_mib <= model.framebuffer_mib - model.reserved_mib,
                    "{}",
                    profile.name
                );
                let same = |other: &&Profile| other.id == profile.id || other.question == profile.question;
                assert_eq!(model.profiles.iter().filter(same).count(), 1, "{}", profile.name);
            }
            assert!(model.watts_per_sm() > 0.0);
        }
    }
}
