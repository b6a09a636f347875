//! A file system in user space, hand-written, in its own process and mount namespace. It lets one
//! file be opened, and then answers no request.
//!
//! The command's close of the file, and its exit, wait until that process has ended. Other
//! processes do not wait; otherwise a process with the open file could start no process.

use std::ffi::{CStr, CString};
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Requests of the kernel (linux/fuse.h) with an answer.
const LOOKUP: u32 = 1;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
/// Requests without an answer.
const FORGET: u32 = 2;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

/// The mount point, for the serving process.
const FOLDER: &str = "DIPC_TEST_FUSE";
/// Longest life of that process, in seconds: a killed test waits for it.
const LONGEST_LIFE: u32 = 300;

/// A file on it.
pub struct StuckFile {
    pub fd: OwnedFd,
    server: Child,
    _folder: tempfile::TempDir,
}

impl StuckFile {
    /// `Err` has the reason why this machine has none.
    pub fn new() -> Result<Self, String> {
        let folder = tempfile::tempdir().unwrap();
        let mut server = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "stray::fuse::child_serves",
                "--ignored",
                "--nocapture",
            ])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let said = BufReader::new(server.stdout.take().unwrap()).lines();
        let said = said.map_while(Result::ok);
        let (ready, failed) = ("mounted ", "not mounted: ");
        let outcome = said
            .filter_map(|line| {
                let at = line.strip_prefix(ready).map(str::to_owned);
                let why = line.strip_prefix(failed).map(str::to_owned);
                at.map(Ok).or(why.map(Err))
            })
            .next();
        let opened = outcome
            .unwrap_or(Err("its process has ended".into()))
            .and_then(|at| File::open(at).map_err(|error| error.to_string()));
        match opened {
            Ok(file) => Ok(Self {
                fd: file.into(),
                server,
                _folder: folder,
            }),
            Err(why) => {
                end(&mut server);
                Err(why)
            }
        }
    }
}

impl Drop for StuckFile {
    fn drop(&mut self) {
        // The end of this process ends all waits for an answer.
        end(&mut self.server);
    }
}

fn end(server: &mut Child) {
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
#[ignore = "run by those that want such a file"]
fn child_serves() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    // SAFETY: a system call without pointers.
    unsafe { libc::alarm(LONGEST_LIFE) };
    let folder = Path::new(&folder);
    // A new line, because the harness may have begun one.
    println!();
    match mount(folder) {
        Ok(device) => {
            // SAFETY: a system call without pointers.
            let thread = unsafe { libc::gettid() };
            let path = folder.join("file");
            println!(
                "mounted /proc/{}/task/{thread}/root{}",
                std::process::id(),
                path.display()
            );
            serve(device);
        }
        Err(error) => println!("not mounted: {error}"),
    }
}

/// Mounts it in this thread's own namespace.
fn mount(folder: &Path) -> std::io::Result<File> {
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")?;
    // SAFETY: gives this thread a mount namespace of its own; no memory is involved.
    check(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    mount_at(
        Path::new("/"),
        c"none",
        c"",
        libc::MS_REC | libc::MS_PRIVATE,
    )?;
    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,allow_other",
        device.as_raw_fd()
    );
    mount_at(folder, c"fuse", &CString::new(options)?, 0)?;
    Ok(device)
}

fn mount_at(path: &Path, kind: &CStr, options: &CStr, flags: libc::c_ulong) -> std::io::Result<()> {
    let path = CString::new(path.to_str().unwrap())?;
    let (kind, options) = (kind.as_ptr(), options.as_ptr());
    // SAFETY: every string ends with a zero byte and outlives the call.
    check(unsafe { libc::mount(kind, path.as_ptr(), kind, flags, options.cast()) })
}

fn check(result: i32) -> std::io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Answers until the file is open, then only reads.
fn serve(mut device: File) {
    let mut request = vec![0; 1 << 20];
    let mut is_open = false;
    while let Ok(len) = device.read(&mut request) {
        assert!(len >= 40, "a request has a head");
        let word = |at: usize| u32::from_le_bytes(request[at..at + 4].try_into().unwrap());
        let opcode = word(4);
        // Closes by the test and by other processes complete.
        let is_flushed = opcode == FLUSH && !is_under_test(word(32));
        if (is_open && !is_flushed) || matches!(opcode, FORGET | INTERRUPT | BATCH_FORGET) {
            continue;
        }
        let (error, answer) = match opcode {
            INIT => (
                0,
                words(&[7, 31, 0, 0, 0, 1 << 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            ),
            LOOKUP => (
                0,
                [
                    words(&[2, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
                    attributes(2, 0o100_644),
                ]
                .concat(),
            ),
            GETATTR => (0, [words(&[0; 4]), attributes(1, 0o040_755)].concat()),
            OPEN => (0, words(&[0; 4])),
            FLUSH => (0, Vec::new()),
            _ => (-libc::ENOSYS, Vec::new()),
        };
        is_open |= opcode == OPEN;
        let len = u32::try_from(16 + answer.len()).unwrap();
        let head = [
            words(&[len, error.cast_unsigned()]),
            request[8..16].to_vec(),
        ]
        .concat();
        device.write_all(&[head, answer].concat()).unwrap();
    }
}

/// Whether this thread belongs to the command, or to the library in it.
fn is_under_test(thread: u32) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{thread}/comm"));
    name.is_ok_and(|name| name.starts_with("dipc"))
}

/// `struct fuse_attr`, of 88 bytes.
fn attributes(inode: u32, mode: u32) -> Vec<u8> {
    let mut all = [0; 22];
    (all[0], all[15], all[16], all[20]) = (inode, mode, 1, 4096);
    words(&all)
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
