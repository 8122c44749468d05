//! A supervisor that follows a script: it speaks the real frames, and the test decides what it says.

use std::fs::File;
use std::io::{IoSliceMut, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use migm_shared::frame::{Decoder, encode};
use migm_shared::ids::{AttemptId, Incarnation, JobId};
use migm_shared::page::CounterPage;
use migm_supervisor::control::{
    AttemptRecord, Figures, Grant, JobState, JobStatus, Outcome, Reply, Request, Submission, Unmet,
};
use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::support::migm;

/// Longer than anything here takes on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(20);

/// Waits until it is so, and fails the test when it does not become so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < end, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The scripted supervisor's socket.
pub struct Scripted {
    folder: TempDir,
    listener: Option<UnixListener>,
}

impl Scripted {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = Some(UnixListener::bind(folder.path().join("s")).unwrap());
        Self { folder, listener }
    }

    /// A folder for the test's files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    /// Nobody listens any more, as after SIGKILL: the socket file stays.
    pub fn die(&mut self) {
        self.listener = None;
    }

    /// The next supervisor takes the place.
    pub fn come_back(&mut self) {
        std::fs::remove_file(self.socket()).unwrap();
        self.listener = Some(UnixListener::bind(self.socket()).unwrap());
    }

    /// `migm run ARGS -- sh -c SCRIPT` at this supervisor, with nothing to read and its words kept.
    pub fn run(&self, args: &[&str], script: &str) -> Command {
        let mut command = Command::new(migm());
        command.arg("run").args(args).args(["--", "sh", "-c", script]);
        command
            .env("MIGM_SOCKET", self.socket())
            .env("MIGM_HISTORY", "off")
            .env_remove("CUDA_VISIBLE_DEVICES")
            .env_remove("LD_PRELOAD")
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// The next runner that connects.
    pub fn accept(&self) -> Peer {
        let listener = self.listener.as_ref().unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut stream = None;
        until("a runner connects", || {
            stream = listener.accept().ok().map(|(stream, _)| stream);
            stream.is_some()
        });
        let stream = stream.unwrap();
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Peer {
            stream,
            decoder: Decoder::default(),
            attached: None,
        }
    }

    /// A runner that has submitted its job and been accepted.
    pub fn accept_job(&self) -> (Peer, Submission) {
        let mut peer = self.accept();
        let Request::Submit(submission) = peer.expect() else {
            panic!("the first word of a runner is no submission");
        };
        peer.say(&Reply::Accepted {
            job: JobId(1),
            notice: None,
        });
        (peer, submission)
    }
}

/// One runner's connection.
pub struct Peer {
    stream: UnixStream,
    decoder: Decoder,
    attached: Option<File>,
}

impl Peer {
    pub fn say(&mut self, reply: &Reply) {
        self.stream.write_all(&encode(reply).unwrap()).unwrap();
    }

    /// The next request; fails the test when none comes.
    pub fn expect(&mut self) -> Request {
        self.next().expect("the runner has closed the connection")
    }

    /// The connection ends without a further word.
    pub fn expect_end(&mut self) {
        let next = self.next();
        assert!(next.is_none(), "{next:?}");
    }

    /// The runner gives its waiting job up: by a word, or by going away before it knew the job's number.
    pub fn expect_withdrawn(&mut self) {
        let next = self.next();
        assert!(matches!(next, None | Some(Request::Cancel { .. })), "{next:?}");
    }

    /// No request comes within this time.
    pub fn expect_silence(&mut self, time: Duration) {
        self.stream.set_read_timeout(Some(time)).unwrap();
        let mut byte = [0; 1];
        let got = nix::sys::socket::recv(self.stream.as_raw_fd(), &mut byte, MsgFlags::MSG_PEEK);
        assert_eq!(got, Err(nix::errno::Errno::EAGAIN));
        self.stream.set_read_timeout(Some(LIMIT)).unwrap();
    }

    fn next(&mut self) -> Option<Request> {
        loop {
            if let Some(request) = self.decoder.take().unwrap() {
                return Some(request);
            }
            let mut bytes = [0; 4096];
            let mut parts = [IoSliceMut::new(&mut bytes)];
            let mut space = nix::cmsg_space!([i32; 4]);
            let flags = MsgFlags::MSG_CMSG_CLOEXEC;
            let got = recvmsg::<()>(self.stream.as_raw_fd(), &mut parts, Some(&mut space), flags)
                .expect("a request");
            for message in got.cmsgs().unwrap() {
                if let ControlMessageOwned::ScmRights(files) = message {
                    for file in files {
                        // SAFETY: the kernel has just made this descriptor for us, and nobody else has it.
                        self.attached = Some(File::from(unsafe { OwnedFd::from_raw_fd(file) }));
                    }
                }
            }
            let count = got.bytes;
            if count == 0 {
                return None;
            }
            self.decoder.push(&bytes[..count]);
        }
    }

    /// The counter page that came along.
    pub fn page(&mut self) -> File {
        self.attached.take().expect("a counter page comes along")
    }

    pub fn grant(&mut self, grant: &Grant) {
        self.say(&Reply::Grant(grant.clone()));
    }

    /// The attempt's process has been started; its pid.
    pub fn expect_started(&mut self, attempt: AttemptId) -> i32 {
        match self.expect() {
            Request::Started { attempt: which, pid } if which == attempt => i32::try_from(pid).unwrap(),
            other => panic!("not the start of {attempt}: {other:?}"),
        }
    }

    /// Grants a lease; the pid of the attempt's process.
    pub fn start(&mut self, grant: &Grant) -> i32 {
        self.grant(grant);
        self.expect_started(grant.attempt)
    }

    /// Asks for the move of an attempt, as on a forecast.
    pub fn ask_to_move(&mut self, grant: &Grant) {
        self.say(&Reply::Move {
            attempt: grant.attempt,
            reason: "forecast".into(),
        });
    }

    /// The attempt has ended.
    pub fn expect_ended(&mut self, attempt: AttemptId) -> Ended {
        match self.expect() {
            Request::Ended {
                attempt: which,
                status,
                outcome,
                figures,
                unmet,
            } if which == attempt => Ended {
                status,
                outcome,
                figures,
                unmet,
            },
            other => panic!("not the end of {attempt}: {other:?}"),
        }
    }

    /// Tells the runner that its job is over.
    pub fn finish(&mut self, figures: Figures) {
        self.say(&Reply::Finished(Box::new(JobStatus {
            id: JobId(1),
            name: "job".into(),
            state: JobState::Ended,
            attempts: Vec::new(),
            figures,
            predicted_peak_bytes: Some(12_345),
            iteration: 0,
            iterations: None,
            part: None,
            note: None,
            user: 0,
            since: 0.0,
            wishes: migm_supervisor::control::Wishes::default(),
        })));
    }

    /// Runs one attempt that ends by itself, and ends the job.
    pub fn serve_one(&mut self, grant: &Grant) -> Ended {
        self.start(grant);
        let ended = self.expect_ended(grant.attempt);
        self.finish(ended.figures);
        ended
    }
}

/// What a runner says of an attempt's end.
#[derive(Debug)]
pub struct Ended {
    pub status: i32,
    pub outcome: Outcome,
    pub figures: Figures,
    pub unmet: Option<Unmet>,
}

/// A lease for one attempt of the job.
pub fn grant(submission: &Submission, attempt: u32) -> Grant {
    Grant {
        attempt: AttemptId {
            job: JobId(1),
            attempt,
            nonce: submission.nonce,
        },
        slice: Incarnation(u64::from(attempt)),
        gpu: "NVIDIA A100-SXM4-40GB".into(),
        gpu_uuid: "GPU-1".into(),
        profile: format!("{attempt}g.5gb"),
        start: 0,
        memory: 5 << 30,
        visible_device: format!("MIG-{attempt}"),
        environment: vec![("SIMGPU_ID".into(), "seven".into())],
        library_path: Vec::new(),
        interposer: String::new(),
        reason: "the smallest that is free".into(),
    }
}

/// What the runner says of attempts, without times.
pub fn outcomes(attempts: &[AttemptRecord]) -> Vec<Option<Outcome>> {
    attempts.iter().map(|attempt| attempt.outcome).collect()
}

pub fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap())
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
}

pub fn wait_for_file(path: &Path) -> String {
    let mut content = String::new();
    until(&format!("{} is there", path.display()), || {
        content = std::fs::read_to_string(path).unwrap_or_default();
        content.ends_with('\n')
    });
    content
}

/// The page that a runner has sent, as one of its processes maps it.
pub fn map(file: impl AsFd) -> &'static CounterPage {
    let size = std::num::NonZeroUsize::new(size_of::<CounterPage>()).unwrap();
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a fresh mapping at a place of the kernel's choice touches no other memory.
    let page = unsafe { mmap(None, size, access, MapFlags::MAP_SHARED, file, 0) }.unwrap();
    // SAFETY: the page is of this size and made of atomics; the mapping stays until the test ends.
    unsafe { page.cast::<CounterPage>().as_ref() }
}
