//! What one driver has that an older one has not.
//!
//! Counts of profile questions and the calls that a library knows are those of the nvml.h that came with each CUDA
//! version (NVIDIA/go-nvml keeps them all); rules of placement and of names are NVIDIA's MIG user guide's. A GPU
//! instance profile exists for a driver that knows its question, so `+me` from R470 and double memory from R525.

use crate::model::Profile;

/// A branch of the driver, and what came with it.
#[derive(Debug)]
struct Branch {
    number: u32,
    /// 1000 x major + 10 x minor.
    cuda: i32,
    /// `NVML_GPU_INSTANCE_PROFILE_COUNT`.
    gpu_instance_questions: u32,
    /// `NVML_COMPUTE_INSTANCE_PROFILE_COUNT`.
    compute_instance_questions: u32,
    /// A version of it, for who names the branch alone.
    version: Option<&'static str>,
}

const fn branch(
    number: u32,
    cuda: i32,
    gpu_instance_questions: u32,
    compute_instance_questions: u32,
    version: Option<&'static str>,
) -> Branch {
    Branch {
        number,
        cuda,
        gpu_instance_questions,
        compute_instance_questions,
        version,
    }
}

const BRANCHES: [Branch; 23] = [
    branch(450, 11_000, 6, 6, Some("450.80.02")),
    branch(455, 11_010, 6, 6, None),
    branch(460, 11_020, 7, 7, Some("460.73.01")),
    branch(465, 11_030, 7, 7, None),
    branch(470, 11_040, 8, 7, Some("470.57.02")),
    branch(495, 11_050, 8, 7, None),
    branch(510, 11_060, 8, 7, Some("510.47.03")),
    branch(515, 11_070, 8, 7, None),
    branch(520, 11_080, 8, 7, None),
    branch(525, 12_000, 10, 8, Some("525.85.12")),
    branch(530, 12_010, 10, 8, None),
    branch(535, 12_020, 10, 8, Some("535.183.01")),
    branch(545, 12_030, 10, 8, None),
    branch(550, 12_040, 10, 8, Some("550.90.07")),
    branch(555, 12_050, 10, 8, None),
    branch(560, 12_060, 10, 8, None),
    branch(565, 12_070, 10, 8, None),
    branch(570, 12_080, 13, 8, Some("570.133.20")),
    branch(575, 12_090, 17, 8, Some("575.51.03")),
    branch(580, 13_000, 17, 8, Some("580.82.07")),
    branch(590, 13_010, 17, 8, None),
    branch(595, 13_020, 18, 8, Some("595.58.03")),
    branch(610, 13_030, 18, 9, None),
];

/// What a driver of a branch can do.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub struct Driver(pub u32);

impl Driver {
    /// Of a version: 570 of `570.133.20`.
    #[must_use]
    pub fn of(version: &str) -> Option<Self> {
        version.split('.').next()?.parse().ok().map(Self)
    }

    /// The newest branch that is not newer; the oldest for what is older than all.
    fn branch(self) -> &'static Branch {
        let known = BRANCHES.iter().rev().find(|branch| branch.number <= self.0);
        known.unwrap_or(&BRANCHES[0])
    }

    /// The CUDA version that it reports, 1000 x major + 10 x minor.
    #[must_use]
    pub fn cuda(self) -> i32 {
        self.branch().cuda
    }

    /// Questions for GPU instance profiles below this number are understood.
    #[must_use]
    pub fn gpu_instance_questions(self) -> u32 {
        self.branch().gpu_instance_questions
    }

    /// Whether a GPU instance profile exists for it.
    #[must_use]
    pub fn knows(self, profile: &Profile) -> bool {
        profile.question < self.gpu_instance_questions()
    }

    /// Questions for compute instance profiles below this number are understood.
    #[must_use]
    pub fn compute_instance_questions(self) -> u32 {
        self.branch().compute_instance_questions
    }

    /// Whether it fills the third version of the structures that describe profiles.
    #[must_use]
    pub fn has_third_profile_structure(self) -> bool {
        self.0 >= 545
    }

    /// Whether it says if a GPU changes its MIG mode without a reset.
    #[must_use]
    pub fn tells_resetless_mig(self) -> bool {
        self.0 >= 535
    }

    /// Whether a 4g may stand beside a 3g.
    #[must_use]
    pub fn has_four_with_three(self) -> bool {
        self.0 >= 510
    }

    /// Whether a process may have several MIG devices, one of each GPU instance.
    #[must_use]
    pub fn shows_several_mig_devices(self) -> bool {
        self.0 >= 570
    }

    /// Whether MIG devices have UUIDs of their own; before, they are called by GPU and ids.
    #[must_use]
    pub fn has_mig_uuids(self) -> bool {
        self.0 >= 470
    }

    /// Whether profiles are listed while MIG is off. R535 was seen not to.
    #[must_use]
    pub fn lists_profiles_without_mig(self) -> bool {
        self.0 > 535
    }

    /// Whether the halves of a 7x8 grid are numbered, and filled by 3g, from the lower one: listings of R450 and
    /// R460 show two 3g created as id 2 at 0 and id 1 at 4, later ones as id 2 at 4 and id 1 at 0.
    #[must_use]
    pub fn fills_lower_half_first(self) -> bool {
        self.0 < 470
    }
}

/// A driver version that is not understood, or that is too old for a GPU.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DriverError {
    /// It is neither a version nor a branch with a known one.
    #[error("driver version `{0}` is not of the form 570.133.20, nor one of the branches {known}", known = known())]
    Unknown(String),
    /// It does not know the GPU.
    #[error("`{gpu}` needs driver {needs} or later, not {version}")]
    TooOld {
        /// The GPU.
        gpu: &'static str,
        /// The first driver that knows it.
        needs: &'static str,
        /// The driver.
        version: String,
    },
}

fn known() -> String {
    let known = BRANCHES.iter().filter(|branch| branch.version.is_some());
    known
        .map(|branch| branch.number.to_string())
        .collect::<Vec<_>>()
        .join(", ")
}

/// The full version that `text` means: itself, or one of the branch that it names.
pub fn version(text: &str) -> Result<String, DriverError> {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let unknown = || DriverError::Unknown(text.to_owned());
    if Driver::of(text).is_none() || text.len() > 31 || !text.split('.').all(digits) {
        return Err(unknown());
    }
    if text.contains('.') {
        return Ok(text.to_owned());
    }
    let of = |branch: &&Branch| Driver::of(text) == Some(Driver(branch.number));
    let found = BRANCHES.iter().find(of).and_then(|branch| branch.version);
    found.map(str::to_owned).ok_or_else(unknown)
}

/// Whether a version is `least` or later.
#[must_use]
pub fn reaches(version: &str, least: &str) -> bool {
    let numbers = |text: &str| -> Vec<u32> { text.split('.').map_while(|part| part.parse().ok()).collect() };
    numbers(version) >= numbers(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_branch_of_a_version() {
        assert_eq!(Driver::of("570.133.20"), Some(Driver(570)));
        assert_eq!(Driver::of("x"), None);
    }

    #[test]
    fn a_branch_alone_means_a_version_of_it() {
        assert_eq!(version("535").as_deref(), Ok("535.183.01"));
        assert_eq!(version("535.1").as_deref(), Ok("535.1"));
        for wrong in ["", "new", "535.", "540", "5 35"] {
            let line = version(wrong).unwrap_err().to_string();
            assert!(
                line.starts_with(&format!("driver version `{wrong}` is not")),
                "{line}"
            );
            assert!(line.ends_with("the branches 450, 460, 470, 510, 525, 535, 550, 570, 575, 580, 595"));
        }
    }

    #[test]
    fn versions_compare_by_number() {
        assert!(reaches("525.105.17", "525.85.12"));
        assert!(!reaches("450.51.06", "450.80.02"));
        assert!(reaches("450.80.02", "450.80.02"));
    }

    #[test]
    fn a_branch_between_two_is_as_the_older() {
        assert_eq!(Driver(580).cuda(), 13_000);
        assert_eq!(Driver(585).gpu_instance_questions(), 17);
        assert_eq!(Driver(440).gpu_instance_questions(), 6);
        assert!(BRANCHES.is_sorted_by_key(|branch| branch.number));
    }
}
