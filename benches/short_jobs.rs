//! Many short jobs on one simulated A100 that holds seven 1g slices: how long after the end of one job the next one
//! starts on its slice, and what that costs.
//!
//! ```text
//! cargo build --release && cargo bench --bench short_jobs [-- [--jobs N] [--seconds S] [--waiting N] [--only PART,...]
//!     [--policy P]]
//! ```
//!
//! The jobs are the same CUDA program, which notes itself when it starts and ends, in four ways in the same run: as `migm submit
//! --array` and as `migm batch`, under the two usual policies, and started by a plain loop on each of the seven slices, without
//! migm. Parts: `array`, `batch`, `loop`, `waiting` (an array of `--waiting` jobs none of which has its turn) and `idle`.
#![expect(clippy::unwrap_used, reason = "a benchmark ends at its first surprise")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde_json::Value;
use support::{Place, eventually, json};

const SLICES: usize = 7;
const PATIENCE: Duration = Duration::from_secs(900);

/// Takes a context and a MiB of device memory, stays for so many seconds, and notes where and when it ran.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}
int main(int count, char **words) {
    double start = now();
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
    if (!driver || count != 3) return 9;
    int (*init)(unsigned) = dlsym(driver, "cuInit");
    int (*retain)(void **, int) = dlsym(driver, "cuDevicePrimaryCtxRetain");
    int (*current)(void *) = dlsym(driver, "cuCtxSetCurrent");
    int (*alloc)(unsigned long long *, unsigned long) = dlsym(driver, "cuMemAlloc_v2");
    unsigned long long memory;
    if (init(0) || retain(&context, 0) || current(context) || alloc(&memory, 1 << 20)) return 8;
    usleep(atof(words[1]) * 1e6);
    char line[200];
    int length = snprintf(line, sizeof line, "%s %.6f %.6f\n", getenv("CUDA_VISIBLE_DEVICES"), start, now());
    int log = open(words[2], O_WRONLY | O_APPEND | O_CREAT, 0600);
    return write(log, line, length) == length ? 0 : 7;
}
"#;

struct Wanted {
    jobs: usize,
    seconds: f64,
    waiting: usize,
    only: Option<String>,
    policy: Option<String>,
}

impl Wanted {
    fn read() -> Self {
        let arguments: Vec<String> = std::env::args().collect();
        let given = |name: &str| {
            let at = arguments.iter().position(|argument| argument == name)?;
            Some(arguments.get(at + 1).expect("a value").clone())
        };
        let number = |name: &str, usual: usize| given(name).map_or(usual, |text| text.parse().unwrap());
        Self {
            jobs: number("--jobs", 300),
            seconds: given("--seconds").map_or(0.1, |text| text.parse().unwrap()),
            waiting: number("--waiting", 1000),
            only: given("--only"),
            policy: given("--policy"),
        }
    }

    fn has(&self, part: &str) -> bool {
        self.only
            .as_ref()
            .is_none_or(|only| only.split(',').any(|one| one == part))
    }
}

/// A supervisor of this place.
struct Supervisor {
    child: Child,
}

impl Supervisor {
    fn start(place: &Place, policy: &str) -> Self {
        let log = fs::File::create(place.path().join(format!("{policy}.log"))).unwrap();
        let mut command = place.migm(&["supervisor", "--policy", policy]);
        let child = command.stderr(log).stdout(Stdio::null()).spawn().unwrap();
        eventually("the supervisor answers", PATIENCE, || {
            let status = place.migm(&["status"]).output().unwrap().status;
            status.success().then_some(())
        });
        Self { child }
    }

    fn cpu_s(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
        ticks / 100.0
    }

    /// How often its threads have gone to sleep.
    fn sleeps(&self) -> f64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let of = |status: PathBuf| figure(&fs::read_to_string(status).unwrap(), "voluntary_ctxt_switches:");
        tasks.map(|task| of(task.unwrap().path().join("status"))).sum()
    }

    fn memory_mb(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        figure(&status, "VmHWM:") / 1e3
    }

    fn files(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id()))
            .unwrap()
            .count()
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        let _ = kill(pid, Signal::SIGTERM);
        let _ = self.child.wait();
    }
}

fn figure(text: &str, name: &str) -> f64 {
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// CPU seconds of all children that have been waited for, theirs included.
fn children_cpu_s() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    let seconds = |time: TimeVal| Duration::from_micros(u64::try_from(time.num_microseconds()).unwrap());
    (seconds(usage.user_time()) + seconds(usage.system_time())).as_secs_f64()
}

/// Where and when one job ran; monotonic seconds.
struct Ran {
    device: String,
    start: f64,
    end: f64,
}

fn noted(log: &Path) -> Vec<Ran> {
    let text = fs::read_to_string(log).unwrap_or_default();
    let ran = |line: &str| {
        let mut words = line.split(' ');
        Some(Ran {
            device: words.next()?.to_owned(),
            start: words.next()?.parse().ok()?,
            end: words.next()?.parse().ok()?,
        })
    };
    text.lines().filter_map(ran).collect()
}

/// Milliseconds from the end of a job to the start of the next on the same slice, in order of length.
fn gaps(ran: &mut [Ran]) -> Vec<f64> {
    ran.sort_by(|a, b| (&a.device, a.start).partial_cmp(&(&b.device, b.start)).unwrap());
    let pairs = ran.windows(2).filter(|pair| pair[0].device == pair[1].device);
    let mut gaps: Vec<f64> = pairs.map(|pair| (pair[1].start - pair[0].end) * 1e3).collect();
    gaps.sort_by(f64::total_cmp);
    gaps
}

fn now() -> f64 {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).unwrap();
    Duration::from(time).as_secs_f64()
}

/// Reaps everything that has been orphaned to this process, until so many have ended.
fn reap(most: usize) {
    let start = Instant::now();
    let mut reaped = 0;
    while reaped < most && start.elapsed() < PATIENCE {
        // Whoever has a `Child` of this benchmark waits for it elsewhere; none is alive here but the supervisor.
        match waitpid(None::<Pid>, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) | Err(_) => std::thread::sleep(Duration::from_millis(5)),
            Ok(_) => reaped += 1,
        }
    }
    assert_eq!(reaped, most, "runners that have ended");
}

/// One way to run the jobs, measured from its command on.
struct Measured<'a> {
    place: &'a Place,
    wanted: &'a Wanted,
    log: PathBuf,
    began: f64,
    children: f64,
    supervisor: f64,
}

impl<'a> Measured<'a> {
    fn begin(place: &'a Place, wanted: &'a Wanted, supervisor: Option<&Supervisor>) -> Self {
        let log = place.path().join("log");
        let _ = fs::remove_file(&log);
        Self {
            place,
            wanted,
            log,
            began: now(),
            children: children_cpu_s(),
            supervisor: supervisor.map_or(0.0, Supervisor::cpu_s),
        }
    }

    fn program(&self) -> [String; 3] {
        let program = self.place.path().join("program").display().to_string();
        [
            program,
            self.wanted.seconds.to_string(),
            self.log.display().to_string(),
        ]
    }

    #[expect(clippy::cast_precision_loss, reason = "a number of jobs")]
    fn print(&self, way: &str, policy: &str, supervisor: Option<&Supervisor>) {
        let jobs = self.wanted.jobs as f64;
        let mut ran = noted(&self.log);
        assert_eq!(ran.len(), self.wanted.jobs, "jobs that ran as {way}");
        let first = ran.iter().map(|one| one.start).fold(f64::INFINITY, f64::min);
        let last = ran.iter().map(|one| one.end).fold(0.0, f64::max);
        let gaps = gaps(&mut ran);
        let at = |hundredths: usize| gaps[(gaps.len() - 1) * hundredths / 100];
        let per_job = |seconds: f64| seconds * 1e3 / jobs;
        let supervisor = supervisor.map_or_else(
            || format!("{:>12}", "-"),
            |one| format!("{:12.2}", per_job(one.cpu_s() - self.supervisor)),
        );
        println!(
            "{way:7} {policy:9} {:10.2} {:8.2} {:8.1} {:9.1} {:8.1} {:8.1} {supervisor} {:12.2}",
            first - self.began,
            last - first,
            jobs / (last - first),
            at(50),
            at(99),
            gaps[gaps.len() - 1],
            per_job(children_cpu_s() - self.children),
        );
    }
}

fn compile(place: &Place) {
    let source = place.path().join("program.c");
    fs::write(&source, PROGRAM).unwrap();
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args(["-O2", "-o"])
        .arg(place.path().join("program"))
        .arg(source);
    assert!(
        cc.status().unwrap().success(),
        "the benchmark needs a C compiler, `cc` or $CC"
    );
}

fn succeed(command: &mut Command) -> String {
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", output.status);
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn array(place: &Place, wanted: &Wanted, supervisor: &Supervisor, policy: &str) {
    let measured = Measured::begin(place, wanted, Some(supervisor));
    let indices = format!("0-{}", wanted.jobs - 1);
    let mut submit = place.migm(&["submit", "--array", &indices, "--"]);
    succeed(submit.args(measured.program()));
    reap(wanted.jobs);
    measured.print("array", policy, Some(supervisor));
}

fn batch(place: &Place, wanted: &Wanted, supervisor: &Supervisor, policy: &str) {
    let measured = Measured::begin(place, wanted, Some(supervisor));
    let file = place.path().join("batch.toml");
    let job = format!(
        "[[job]]\nname = \"short\"\ncount = {}\ncommand = {:?}\n",
        wanted.jobs,
        measured.program()
    );
    fs::write(&file, job).unwrap();
    // What it tells of each job goes to a file.
    let told = fs::File::create(place.path().join("told")).unwrap();
    let ended = place
        .migm(&["batch", "--json"])
        .arg(file)
        .stdout(Stdio::null())
        .stderr(told)
        .status();
    assert!(ended.unwrap().success());
    measured.print("batch", policy, Some(supervisor));
}

/// The same programs without migm, on the slices that it has left.
fn plain_loop(place: &Place, wanted: &Wanted) {
    let status = json(&place.migm(&["status", "--json"]).output().unwrap());
    let slices = status["gpus"][0]["slices"].as_array().unwrap();
    let devices: Vec<&str> = slices.iter().filter_map(|slice| slice["uuid"].as_str()).collect();
    assert_eq!(devices.len(), SLICES, "slices of an earlier part: {status}");
    let measured = Measured::begin(place, wanted, None);
    let next = AtomicUsize::new(0);
    let run = |device: &str| {
        while next.fetch_add(1, Ordering::Relaxed) < wanted.jobs {
            let [program, words @ ..] = measured.program();
            let mut command = place.command(program);
            command.args(words).env("CUDA_VISIBLE_DEVICES", device);
            assert!(command.status().unwrap().success());
        }
    };
    std::thread::scope(|threads| {
        for device in devices {
            let run = &run;
            threads.spawn(move || run(device));
        }
    });
    measured.print("loop", "-", None);
}

/// Wall milliseconds of a command, the best of three.
fn milliseconds(command: &mut Command) -> f64 {
    let mut once = || {
        let start = Instant::now();
        assert!(command.output().unwrap().status.success(), "{command:?}");
        start.elapsed().as_secs_f64() * 1e3
    };
    (0..3).map(|_| once()).fold(f64::INFINITY, f64::min)
}

/// An array none of whose jobs has its turn: what it costs to be there.
fn waiting(place: &Place, wanted: &Wanted, supervisor: &Supervisor) {
    let first = succeed(&mut place.migm(&["submit", "--", "sleep", "100000"]));
    let (memory, files) = (supervisor.memory_mb(), supervisor.files());
    let start = Instant::now();
    let indices = format!("0-{}", wanted.waiting - 1);
    let after = ["--after", &first, "--array", &indices, "--", "true"];
    let array = succeed(place.migm(&["submit"]).args(after));
    let submitted = start.elapsed().as_secs_f64();
    let private = runners_private_mb(place);
    println!(
        "\n{} jobs that wait: submitted in {submitted:.2} s; {} runners with {:.2} MB each of their own; the supervisor has \
         {:.1} MB and {} descriptors more",
        wanted.waiting,
        private.len(),
        private.iter().sum::<f64>() / private.len().max(1) as f64,
        supervisor.memory_mb() - memory,
        supervisor.files() - files,
    );
    let [jobs, list, status] = [&["jobs"][..], &["jobs", "--all", "--json"], &["status"]]
        .map(|words| milliseconds(&mut place.migm(words)));
    println!("migm jobs {jobs:.0} ms, jobs --all --json {list:.0} ms, status {status:.0} ms");
    let (cpu, sleeps) = (supervisor.cpu_s(), supervisor.sleeps());
    std::thread::sleep(Duration::from_secs(5));
    println!(
        "while they wait the supervisor takes {:.2} % of a core and wakes up {:.1} times a second",
        (supervisor.cpu_s() - cpu) / 5.0 * 100.0,
        (supervisor.sleeps() - sleeps) / 5.0
    );
    let start = Instant::now();
    succeed(place.migm(&["cancel"]).arg(&array));
    succeed(place.migm(&["cancel"]).arg(&first));
    reap(wanted.waiting + 1);
    println!(
        "cancelled, and all runners gone, in {:.2} s",
        start.elapsed().as_secs_f64()
    );
    let [jobs, list] = [&["jobs"][..], &["jobs", "--all"]].map(|words| milliseconds(&mut place.migm(words)));
    println!("with all of them ended: migm jobs {jobs:.0} ms, jobs --all {list:.0} ms");
}

/// Private memory of each process that is a detached runner of this place.
fn runners_private_mb(place: &Place) -> Vec<f64> {
    let kept = fs::read_dir(place.path().join("state/migm/jobs")).unwrap();
    let own = |folder: PathBuf| {
        let record: Value = serde_json::from_slice(&fs::read(folder.join("job.json")).ok()?).ok()?;
        let memory = fs::read_to_string(format!("/proc/{}/smaps_rollup", record["runner"]["pid"])).ok()?;
        Some((figure(&memory, "Private_Clean:") + figure(&memory, "Private_Dirty:")) / 1e3)
    };
    kept.filter_map(|folder| own(folder.unwrap().path())).collect()
}

fn idle(supervisor: &Supervisor) {
    let (cpu, sleeps) = (supervisor.cpu_s(), supervisor.sleeps());
    std::thread::sleep(Duration::from_secs(10));
    println!(
        "\nwith nothing to do the supervisor takes {:.2} % of a core and wakes up {:.1} times a second",
        (supervisor.cpu_s() - cpu) / 10.0 * 100.0,
        (supervisor.sleeps() - sleeps) / 10.0
    );
}

#[expect(clippy::cast_precision_loss, reason = "a number of jobs")]
fn main() {
    let wanted = Wanted::read();
    // Runners are orphans by design: their CPU time is to be had by whoever reaps them.
    nix::sys::prctl::set_child_subreaper(true).unwrap();
    println!(
        "{} jobs of {} s on {SLICES} slices: {:.2} s without any gap\n",
        wanted.jobs,
        wanted.seconds,
        wanted.jobs as f64 / SLICES as f64 * wanted.seconds
    );
    println!(
        "{:17} {:>10} {:>8} {:>8} {:>27} {:>25}\n{:17} {:>10} {:>8} {:>8} {:>9} {:>8} {:>8} {:>12} {:>12}",
        "",
        "first job",
        "first to",
        "jobs",
        "ms between jobs of a slice",
        "CPU ms a job",
        "",
        "after s",
        "last s",
        "a second",
        "median",
        "99 %",
        "most",
        "supervisor",
        "all others"
    );
    let usual = ["scheme-b", "migm"];
    for policy in wanted
        .policy
        .as_deref()
        .map_or(usual.to_vec(), |policy| vec![policy])
    {
        let place = Place::simulated(&["--gpu", "a100-40gb", "--mig", "--time-scale", "1"]);
        compile(&place);
        let supervisor = Supervisor::start(&place, policy);
        if wanted.has("array") {
            array(&place, &wanted, &supervisor, policy);
        }
        if wanted.has("batch") {
            batch(&place, &wanted, &supervisor, policy);
        }
        if policy == usual[0] && wanted.policy.is_none() {
            continue;
        }
        if wanted.has("loop") {
            plain_loop(&place, &wanted);
        }
        if wanted.has("waiting") {
            waiting(&place, &wanted, &supervisor);
        }
        if wanted.has("idle") {
            idle(&supervisor);
        }
    }
}
