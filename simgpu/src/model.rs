//! The GPUs that can be simulated: their MIG tables and their constants.
//!
//! The MIG tables are facts from NVIDIA's MIG user guide and from `nvidia-smi mig` transcripts; memory sizes are
//! the MiB that the driver reports, one driver's where drivers differ. A GPU whose placements or sizes no
//! source gives is refused by name: see [`find`].
//!
//! Multiprocessors, clocks and cache are those of NVIDIA's data sheets. Power figures are assumptions, marked so:
//! NVIDIA publishes the board limit only.

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
    /// Bytes per second over the bus, all copies together. Assumed: about 80 % of 16 lanes of PCIe 4 or 5.
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
const NOT_KNOWN: [(&str, &str); 13] = [
    ("b200-180gb", "placements"),
    ("b300-269gb", "placements"),
    ("gb200-186gb", "placements"),
    ("gb300-278gb", "placements"),
    ("gh200-144gb", "placements"),
    ("gh200-96gb", "placements"),
    ("h100-94gb", "memory sizes"),
    ("h20-141gb", "placements"),
    ("h20-96gb", "placements"),
    ("h200-141gb", "memory sizes"),
    ("rtx-pro-4500-blackwell-32gb", "placements"),
    ("rtx-pro-5000-blackwell-48gb", "placements"),
    ("thor-igpu", "placements"),
];

const ONES: &[u32] = &[0, 1, 2, 3, 4, 5, 6];
const DOUBLE: &[u32] = &[0, 2, 4, 6];
const TWOS: &[u32] = &[0, 2, 4];
const HALVES: &[u32] = &[0, 4];
const FIRST: &[u32] = &[0];

#[expect(clippy::too_many_arguments, reason = "one row of a table")]
const fn row(
    name: &'static str,
    id: u32,
    question: u32,
    (compute, size): (u32, u32),
    count: u32,
    memory_mib: u64,
    sms: u32,
    engines: [u32; 5],
    starts: &'static [u32],
) -> Profile {
    let [copy, decoder, encoder, jpeg, ofa] = engines;
    let engines = Engines::new(copy, decoder, encoder, jpeg, ofa);
    Profile {
        name,
        id,
        question,
        compute,
        size,
        count,
        memory_mib,
        sms,
        engines,
        starts,
    }
}

#[rustfmt::skip]
const A100_40: &[Profile] = &[
    row("1g.5gb",    19, 0, (1, 1), 7,  4_864, 14, [1, 0, 0, 0, 0], ONES),
    row("2g.10gb",   14, 1, (2, 2), 3,  9_984, 28, [2, 1, 0, 0, 0], TWOS),
    row("3g.20gb",    9, 2, (3, 4), 2, 20_096, 42, [3, 2, 0, 0, 0], HALVES),
    row("4g.20gb",    5, 3, (4, 4), 1, 20_096, 56, [4, 2, 0, 0, 0], FIRST),
    row("7g.40gb",    0, 4, (7, 8), 1, 40_448, 98, [7, 5, 0, 1, 1], FIRST),
    row("1g.5gb+me", 20, 7, (1, 1), 1,  4_864, 14, [1, 1, 0, 1, 1], ONES),
    row("1g.10gb",   15, 9, (1, 2), 4,  9_984, 14, [1, 1, 0, 0, 0], DOUBLE),
];

#[rustfmt::skip]
const A100_80: &[Profile] = &[
    row("1g.10gb",    19, 0, (1, 1), 7,  9_728, 14, [1, 0, 0, 0, 0], ONES),
    row("2g.20gb",    14, 1, (2, 2), 3, 19_968, 28, [2, 1, 0, 0, 0], TWOS),
    row("3g.40gb",     9, 2, (3, 4), 2, 40_192, 42, [3, 2, 0, 0, 0], HALVES),
    row("4g.40gb",     5, 3, (4, 4), 1, 40_192, 56, [4, 2, 0, 0, 0], FIRST),
    row("7g.80gb",     0, 4, (7, 8), 1, 80_640, 98, [7, 5, 0, 1, 1], FIRST),
    row("1g.10gb+me", 20, 7, (1, 1), 1,  9_728, 14, [1, 1, 0, 1, 1], ONES),
    row("1g.20gb",    15, 9, (1, 2), 4, 19_968, 14, [1, 1, 0, 0, 0], DOUBLE),
];

// Not derivable from slices: the double-memory 1g has 26 multiprocessors, a 3g has 60.
#[rustfmt::skip]
const H100_80: &[Profile] = &[
    row("1g.10gb",    19, 0, (1, 1), 7,  9_984,  16, [1, 1, 0, 1, 0], ONES),
    row("2g.20gb",    14, 1, (2, 2), 3, 20_096,  32, [2, 2, 0, 2, 0], TWOS),
    row("3g.40gb",     9, 2, (3, 4), 2, 40_448,  60, [3, 3, 0, 3, 0], HALVES),
    row("4g.40gb",     5, 3, (4, 4), 1, 40_448,  64, [4, 4, 0, 4, 0], FIRST),
    row("7g.80gb",     0, 4, (7, 8), 1, 81_152, 132, [8, 7, 0, 7, 1], FIRST),
    row("1g.10gb+me", 20, 7, (1, 1), 1,  9_984,  16, [1, 1, 0, 1, 1], ONES),
    row("1g.20gb",    15, 9, (1, 2), 4, 20_096,  26, [1, 1, 0, 1, 0], DOUBLE),
];

#[rustfmt::skip]
const A30: &[Profile] = &[
    row("1g.6gb",     14, 0, (1, 1), 4,  5_952, 14, [1, 1, 0, 0, 0], &[0, 1, 2, 3]),
    row("2g.12gb",     5, 1, (2, 2), 2, 11_968, 28, [2, 2, 0, 0, 0], &[0, 2]),
    row("4g.24gb",     0, 3, (4, 4), 1, 24_000, 56, [4, 4, 0, 1, 1], FIRST),
    row("1g.6gb+me",  21, 7, (1, 1), 1,  5_952, 14, [1, 1, 0, 1, 1], &[0, 1, 2, 3]),
    row("2g.12gb+me",  6, 8, (2, 2), 1, 11_968, 28, [2, 2, 0, 1, 1], &[0, 2]),
];

// Four compute slices on a grid of twelve.
const QUARTERS: &[u32] = &[0, 3, 6, 9];
#[rustfmt::skip]
const RTX_PRO_6000: &[Profile] = &[
    row("1g.24gb",        14,  0, (1,  3), 4, 24_192,  46, [1, 1, 1, 1, 0], QUARTERS),
    row("2g.48gb",         5,  1, (2,  6), 2, 48_512,  94, [2, 2, 2, 2, 0], &[0, 6]),
    row("4g.96gb",         0,  3, (4, 12), 1, 97_408, 188, [4, 4, 4, 4, 1], FIRST),
    row("1g.24gb+me",     21,  7, (1,  3), 1, 24_192,  46, [1, 1, 1, 1, 1], QUARTERS),
    row("1g.24gb+gfx",    47, 10, (1,  3), 4, 24_192,  46, [1, 1, 1, 1, 0], QUARTERS),
    row("2g.48gb+gfx",    35, 11, (2,  6), 2, 48_512,  94, [2, 2, 2, 2, 0], &[0, 6]),
    row("4g.96gb+gfx",    32, 12, (4, 12), 1, 97_408, 188, [4, 4, 4, 4, 1], FIRST),
    row("1g.24gb-me",     67, 13, (1,  3), 4, 24_192,  46, [1, 0, 0, 0, 0], QUARTERS),
    row("2g.48gb-me",     66, 14, (2,  6), 2, 48_512,  94, [2, 0, 0, 0, 0], &[0, 6]),
    row("1g.24gb+me.all", 65, 15, (1,  3), 1, 24_192,  46, [1, 4, 4, 4, 1], QUARTERS),
    row("2g.48gb+me.all", 64, 16, (2,  6), 1, 48_512,  94, [2, 4, 4, 4, 1], &[0, 6]),
];

/// All GPUs that can be simulated.
pub static MODELS: [Model; 5] = [
    Model {
        key: "a100-40gb",
        product: "NVIDIA A100-SXM4-40GB",
        pci_id: 0x20B0_10DE,
        architecture: Architecture::Ampere,
        capability: (8, 0),
        sms: 108,
        grid: 8,
        compute_slices: 7,
        framebuffer_mib: 40_960,
        reserved_mib: 512,
        clock_khz: 1_410_000,
        memory_clock_khz: 1_215_000,
        memory_bus_bits: 5120,
        l2_bytes: 40 << 20,
        power: Power {
            idle: 55.0,
            limit: 400.0,
            copy: 20.0,
        },
        bus_bytes_per_second: 25e9,
        profiles: A100_40,
    },
    Model {
        key: "a100-80gb",
        product: "NVIDIA A100-SXM4-80GB",
        pci_id: 0x20B2_10DE,
        architecture: Architecture::Ampere,
        capability: (8, 0),
        sms: 108,
        grid: 8,
        compute_slices: 7,
        framebuffer_mib: 81_920,
        reserved_mib: 640,
        clock_khz: 1_410_000,
        memory_clock_khz: 1_593_000,
        memory_bus_bits: 5120,
        l2_bytes: 40 << 20,
        power: Power {
            idle: 60.0,
            limit: 400.0,
            copy: 20.0,
        },
        bus_bytes_per_second: 25e9,
        profiles: A100_80,
    },
    Model {
        key: "h100-80gb",
        product: "NVIDIA H100 80GB HBM3",
        pci_id: 0x2330_10DE,
        architecture: Architecture::Hopper,
        capability: (9, 0),
        sms: 132,
        grid: 8,
        compute_slices: 7,
        framebuffer_mib: 81_559,
        reserved_mib: 327,
        clock_khz: 1_980_000,
        memory_clock_khz: 2_619_000,
        memory_bus_bits: 5120,
        l2_bytes: 50 << 20,
        power: Power {
            idle: 70.0,
            limit: 700.0,
            copy: 30.0,
        },
        bus_bytes_per_second: 50e9,
        profiles: H100_80,
    },
    Model {
        key: "a30-24gb",
        product: "NVIDIA A30",
        pci_id: 0x20B7_10DE,
        architecture: Architecture::Ampere,
        capability: (8, 0),
        sms: 56,
        grid: 4,
        compute_slices: 4,
        framebuffer_mib: 24_576,
        reserved_mib: 384,
        clock_khz: 1_440_000,
        memory_clock_khz: 1_215_000,
        memory_bus_bits: 3072,
        l2_bytes: 24 << 20,
        power: Power {
            idle: 30.0,
            limit: 165.0,
            copy: 10.0,
        },
        bus_bytes_per_second: 25e9,
        profiles: A30,
    },
    Model {
        key: "rtx-pro-6000-blackwell-96gb",
        product: "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        pci_id: 0x2BB5_10DE,
        architecture: Architecture::Blackwell,
        capability: (12, 0),
        sms: 188,
        grid: 12,
        compute_slices: 4,
        framebuffer_mib: 97_887,
        reserved_mib: 479,
        clock_khz: 2_430_000,
        memory_clock_khz: 12_481_000,
        memory_bus_bits: 512,
        l2_bytes: 128 << 20,
        power: Power {
            idle: 35.0,
            limit: 600.0,
            copy: 20.0,
        },
        bus_bytes_per_second: 50e9,
        profiles: RTX_PRO_6000,
    },
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
