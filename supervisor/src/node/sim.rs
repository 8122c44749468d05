//! The one place that knows that a simulated GPU exists: it finds the built objects, lays out the links that
//! the loader follows, and asks the simulated libnvidia-ml for a GPU. From there on all goes through NVML.
//!
//! 1. [`objects`] finds the shared objects beside this executable.
//! 2. [`Objects::link`] makes a folder with the names that programs ask for: `libcuda.so.1` and the like. A
//!    program with that folder in `LD_LIBRARY_PATH` meets the simulated driver.
//! 3. [`SimulatedGpu::create`] makes a GPU in shared memory, and selects it for this process.
//! 4. [`SimulatedGpu::node`] is NVML as on a real machine, loaded by path.

use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::fs;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use libloading::Library;

use super::{NodeError, Nvml};

/// What the loader calls each object, and what the build calls it.
const NAMES: [(&str, &str); 4] = [
    ("libcuda.so.1", "libsimgpu_cuda.so"),
    ("libcudart.so.12", "libsimgpu_cudart12.so"),
    ("libcudart.so.13", "libsimgpu_cudart13.so"),
    ("libnvidia-ml.so.1", "libsimgpu_nvml.so"),
];
const NVML: &str = "libnvidia-ml.so.1";
const INTERPOSER: &str = "libmigm_interposer.so";
/// Longest id of a simulated GPU, with its final zero.
const ID: usize = 128;

/// Why there is no simulated GPU, or no interposer.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// A built object is not where it should be.
    #[error("cannot find {name}: looked in {}", looked_in(looked))]
    NotFound {
        /// File name.
        name: &'static str,
        /// Folders.
        looked: Vec<PathBuf>,
    },
    /// Links or folders could not be made.
    #[error("cannot make {path}: {source}")]
    Link {
        /// The path.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The simulated libnvidia-ml cannot be loaded, or is another library.
    #[error("cannot load the simulated NVML: {0}")]
    Load(#[from] libloading::Error),
    /// It refused.
    #[error("{tried}: {said}")]
    Refused {
        /// What was asked.
        tried: String,
        /// In the simulator's words.
        said: String,
    },
    /// The text cannot be passed on.
    #[error("`{0}` contains a zero byte")]
    Text(String),
    /// NVML over it does not start.
    #[error(transparent)]
    Node(#[from] NodeError),
}

fn looked_in(folders: &[PathBuf]) -> String {
    let names: Vec<String> = folders
        .iter()
        .map(|folder| folder.display().to_string())
        .collect();
    names.join(", ")
}

/// Folders where a build or an installation puts the shared objects of this executable.
fn folders() -> Vec<PathBuf> {
    let Some(beside) = std::env::current_exe()
        .ok()
        .and_then(|exe| exe.parent().map(Path::to_path_buf))
    else {
        return Vec::new();
    };
    let mut folders = vec![beside.clone(), beside.join("deps"), beside.join("../lib/migm")];
    // Test executables lie in deps themselves.
    if beside.ends_with("deps") {
        folders.extend(beside.parent().map(Path::to_path_buf));
    }
    folders
}

/// The newest file of that name. A build as a dependency renews the one in `deps` only, so that an older
/// one beside the executable may be stale.
fn find(name: &'static str, folders: &[PathBuf]) -> Result<PathBuf, SimError> {
    folders
        .iter()
        .map(|folder| folder.join(name))
        .filter_map(|path| {
            let changed = fs::metadata(&path).and_then(|file| file.modified()).ok()?;
            Some((changed, path))
        })
        .max_by_key(|(changed, _)| *changed)
        .and_then(|(_, path)| fs::canonicalize(path).ok())
        .ok_or_else(|| SimError::NotFound {
            name,
            looked: folders.to_vec(),
        })
}

/// The interposer built with this executable.
///
/// # Errors
/// It is not beside the executable, in `deps/` or in `../lib/migm/`.
pub fn interposer_path() -> Result<PathBuf, SimError> {
    find(INTERPOSER, &folders())
}

/// The shared objects of the simulated driver, in the order of their sonames.
#[derive(Clone, Debug)]
pub struct Objects {
    paths: Vec<(&'static str, PathBuf)>,
}

/// Finds the simulated driver built with this executable.
///
/// # Errors
/// One of its objects is in none of the folders.
pub fn objects() -> Result<Objects, SimError> {
    let folders = folders();
    let paths = NAMES
        .iter()
        .map(|(soname, name)| Ok((*soname, find(name, &folders)?)))
        .collect::<Result<_, SimError>>()?;
    Ok(Objects { paths })
}

impl Objects {
    /// Makes or renews `folder` with a link for each soname. It is readable by its owner only where it is
    /// `private`.
    ///
    /// # Errors
    /// The file system refused.
    pub fn link(&self, folder: &Path, private: bool) -> Result<(), SimError> {
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |source| SimError::Link { path, source }
        };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(if private { 0o700 } else { 0o755 })
            .create(folder)
            .map_err(failed(folder))?;
        for (soname, target) in &self.paths {
            let link = folder.join(soname);
            if fs::read_link(&link).is_ok_and(|there| there == *target) {
                continue;
            }
            // By rename, so that a program that starts meanwhile finds one or the other.
            let fresh = folder.join(format!(".{soname}.{}", std::process::id()));
            let _ = fs::remove_file(&fresh);
            symlink(target, &fresh).map_err(failed(&fresh))?;
            fs::rename(&fresh, &link).map_err(failed(&link))?;
        }
        Ok(())
    }
}

/// Wall seconds per simulated second where the loader's libnvidia-ml is the simulated one; `None` where it
/// is a real driver's. A real one has no such symbol.
#[must_use]
pub fn behind_the_loader() -> Option<f64> {
    // SAFETY: NVML's initialisers touch nothing of ours, and it is loaded already when this is asked.
    let library = unsafe { Library::new(NVML) }.ok()?;
    time_scale_of(&library).ok().flatten()
}

/// `Ok(None)` when the library has a GPU and refuses to tell.
fn time_scale_of(library: &Library) -> Result<Option<f64>, libloading::Error> {
    let mut scale = 1.0;
    // SAFETY: the simulated library exports this symbol with this type, and no other library has it.
    let ask = unsafe { library.get::<TimeScale>(b"simgpuTimeScale\0") }?;
    // SAFETY: the pointer is to a live local.
    let code = unsafe { ask(&raw mut scale) };
    Ok((code == 0).then_some(scale))
}

type Create = unsafe extern "C" fn(
    *const c_char,
    c_int,
    f64,
    *const c_char,
    *const c_char,
    *mut c_char,
    usize,
) -> c_int;
type ById = unsafe extern "C" fn(*const c_char) -> c_int;
type Clear = unsafe extern "C" fn() -> c_int;
type Keep = unsafe extern "C" fn(*const c_char, c_uint) -> c_int;
type Faults = unsafe extern "C" fn(*const c_char, *const c_char) -> c_int;
type TimeScale = unsafe extern "C" fn(*mut f64) -> c_int;
type LastError = unsafe extern "C" fn() -> *const c_char;

/// A simulated GPU, or several of a model, selected for this process.
#[derive(Debug)]
pub struct SimulatedGpu {
    library: Library,
    nvml: PathBuf,
    id: String,
}

impl SimulatedGpu {
    /// Makes a GPU of a model, `a100-40gb`, or several, `a100-40gb:2`, with wall seconds per simulated
    /// second (not above 0: `SIMGPU_TIME_SCALE`, else 1). `links` is a folder made by [`Objects::link`].
    ///
    /// # Errors
    /// The library cannot be loaded, or does not know the model.
    pub fn create(links: &Path, spec: &str, mig: bool, time_scale: f64) -> Result<Self, SimError> {
        Self::create_under(links, spec, mig, time_scale, None)
    }

    /// As [`create`](Self::create), under a driver of this version; `None`: `SIMGPU_DRIVER`, else the newest.
    ///
    /// # Errors
    /// The library cannot be loaded, or does not know the model or the version.
    pub fn create_under(
        links: &Path,
        spec: &str,
        mig: bool,
        time_scale: f64,
        driver: Option<&str>,
    ) -> Result<Self, SimError> {
        let mut gpu = Self::load(links)?;
        let text = c_string(spec)?;
        let driver = driver.map(c_string).transpose()?;
        let driver = driver.as_ref().map_or(std::ptr::null(), |driver| driver.as_ptr());
        let (mig, faults) = (c_int::from(mig), std::ptr::null());
        let mut id: [c_char; ID] = [0; ID];
        // SAFETY: the simulated library exports this symbol with this type.
        let create = unsafe { gpu.library.get::<Create>(b"simgpuCreate\0") }?;
        // SAFETY: the texts end in zero or are null, as is allowed, and the buffer has the length given.
        let code = unsafe {
            create(
                text.as_ptr(),
                mig,
                time_scale,
                driver,
                faults,
                id.as_mut_ptr(),
                ID,
            )
        };
        gpu.check(code, || format!("simulating {spec}"))?;
        gpu.id = id
            .iter()
            .take_while(|byte| **byte != 0)
            .map(|byte| char::from(byte.to_ne_bytes()[0]))
            .collect();
        gpu.select()?;
        Ok(gpu)
    }

    /// Selects a GPU that is there already, by id.
    ///
    /// # Errors
    /// There is none of that id.
    pub fn attach(links: &Path, id: &str) -> Result<Self, SimError> {
        let mut gpu = Self::load(links)?;
        id.clone_into(&mut gpu.id);
        gpu.select()?;
        Ok(gpu)
    }

    fn load(links: &Path) -> Result<Self, SimError> {
        let nvml = links.join(NVML);
        // SAFETY: the library's initialisers touch nothing of ours.
        let library = unsafe { Library::new(&nvml) }?;
        Ok(Self {
            library,
            nvml,
            id: String::new(),
        })
    }

    /// What `SIMGPU_ID` must be for other processes to meet this GPU.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// NVML over the selected GPU.
    ///
    /// # Errors
    /// It does not start.
    pub fn node(&self) -> Result<Nvml, SimError> {
        Nvml::at(&self.nvml).map_err(|error| match self.check(-1, || "starting its NVML".to_owned()) {
            // A wrong variable has a line of its own, which a driver's code cannot give.
            Err(SimError::Refused { tried, said }) if !said.is_empty() => SimError::Refused { tried, said },
            _ => error.into(),
        })
    }

    /// Wall seconds per simulated second.
    ///
    /// # Errors
    /// The library refused.
    pub fn time_scale(&self) -> Result<f64, SimError> {
        if let Some(scale) = time_scale_of(&self.library)? {
            return Ok(scale);
        }
        self.check(-1, || "reading the time scale".to_owned())?;
        Ok(1.0)
    }

    /// Keeps the GPU from being cleared while the process of this pid lives, though nobody uses it.
    ///
    /// # Errors
    /// The library refused.
    pub fn keep_for(&self, pid: u32) -> Result<(), SimError> {
        let id = c_string(&self.id)?;
        // SAFETY: the simulated library exports this symbol with this type.
        let keep = unsafe { self.library.get::<Keep>(b"simgpuKeep\0") }?;
        // SAFETY: the text ends in zero.
        let code = unsafe { keep(id.as_ptr(), pid) };
        self.check(code, || format!("keeping simulated GPU {}", self.id))
    }

    /// Plays these faults from now on, in place of all before; the form is that of `SIMGPU_FAULTS`, an empty text
    /// plays none.
    ///
    /// # Errors
    /// The text was not understood; the faults before stay.
    pub fn set_faults(&self, faults: &str) -> Result<(), SimError> {
        let (id, text) = (c_string(&self.id)?, c_string(faults)?);
        // SAFETY: the simulated library exports this symbol with this type.
        let set = unsafe { self.library.get::<Faults>(b"simgpuFaults\0") }?;
        // SAFETY: both texts end in zero.
        let code = unsafe { set(id.as_ptr(), text.as_ptr()) };
        self.check(code, || format!("setting faults of simulated GPU {}", self.id))
    }

    /// Removes the GPU's shared state. Processes that still use it keep what they have mapped.
    ///
    /// # Errors
    /// The library refused.
    pub fn remove(&self) -> Result<(), SimError> {
        self.by_id(b"simgpuRemove\0", "removing")
    }

    /// Removes this user's simulated GPUs that no living process has made or uses.
    ///
    /// # Errors
    /// The library cannot be loaded or refused.
    pub fn clear(links: &Path) -> Result<(), SimError> {
        let gpu = Self::load(links)?;
        // SAFETY: the simulated library exports this symbol with this type.
        let clear = unsafe { gpu.library.get::<Clear>(b"simgpuClear\0") }?;
        // SAFETY: it takes nothing.
        let code = unsafe { clear() };
        gpu.check(code, || "removing simulated GPUs".to_owned())
    }

    fn select(&self) -> Result<(), SimError> {
        self.by_id(b"simgpuSelect\0", "selecting")
    }

    fn by_id(&self, symbol: &[u8], verb: &str) -> Result<(), SimError> {
        let id = c_string(&self.id)?;
        // SAFETY: the simulated library exports this symbol with this type.
        let call = unsafe { self.library.get::<ById>(symbol) }?;
        // SAFETY: the text ends in zero.
        let code = unsafe { call(id.as_ptr()) };
        self.check(code, || format!("{verb} simulated GPU {}", self.id))
    }

    fn check(&self, code: c_int, tried: impl FnOnce() -> String) -> Result<(), SimError> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the simulated library exports this symbol with this type.
        let last = unsafe { self.library.get::<LastError>(b"simgpuLastError\0") }?;
        // SAFETY: it takes nothing.
        let text = unsafe { last() };
        let said = if text.is_null() {
            format!("code {code}")
        } else {
            // SAFETY: the library gives text that ends in zero and lives until this thread's next call.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        Err(SimError::Refused { tried: tried(), said })
    }
}

fn c_string(text: &str) -> Result<CString, SimError> {
    CString::new(text).map_err(|_| SimError::Text(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_object_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let (old, fresh) = (folder.path().join("old"), folder.path().join("fresh"));
        for path in [&old, &fresh] {
            fs::create_dir(path).unwrap();
            fs::write(path.join(INTERPOSER), "").unwrap();
        }
        let file = fs::File::options()
            .write(true)
            .open(old.join(INTERPOSER))
            .unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        let found = find(INTERPOSER, &[old.clone(), fresh.clone()]).unwrap();
        assert_eq!(found, fs::canonicalize(fresh.join(INTERPOSER)).unwrap());
    }

    #[test]
    fn a_missing_object_says_where_was_looked() {
        let error = find(
            INTERPOSER,
            &[PathBuf::from("/nowhere/a"), PathBuf::from("/nowhere/b")],
        )
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot find libmigm_interposer.so: looked in /nowhere/a, /nowhere/b"
        );
    }

    #[test]
    fn links_bear_the_names_that_programs_ask_for() {
        let folder = tempfile::tempdir().unwrap();
        let object = folder.path().join("libsimgpu_cuda.so");
        fs::write(&object, "").unwrap();
        let objects = Objects {
            paths: vec![("libcuda.so.1", object.clone())],
        };
        let links = folder.path().join("links");
        for _ in 0..2 {
            objects.link(&links, true).unwrap();
            assert_eq!(fs::read_link(links.join("libcuda.so.1")).unwrap(), object);
        }
        assert_eq!(fs::read_dir(&links).unwrap().count(), 1);
    }
}
