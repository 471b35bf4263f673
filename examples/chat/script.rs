//! The script: which clients are admitted, which are rejected, and which lines they receive.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// Maximum wait for a line, far above what any takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// The client's message if it does not trust the lobby's authority.
const STRANGE: &str = "its certificate is of no authority that is trusted here";

/// Runs the script. Returns an error if any step fails.
pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    let folder = Folder::new()?;
    let ca = folder.0.join("ca.pem");
    let server = server(&ca, "none")?;
    let lobby = server.first_word()?;
    let client = |name: &str, words: &[&str], password: &str| {
        let mut all = vec!["client", lobby.as_str(), name];
        all.extend_from_slice(words);
        Started::new(&all, &ca, &[password])
    };
    let mut ann = client("ann", &["--register"], "correct horse")?;
    ann.expect_line("* ann is here")?;
    let mut bob = client("bob", &["--register"], "battery staple")?;
    bob.expect_line("* bob is here")?;
    ann.expect_line("* bob is here")?;
    ann.says("hello bob")?;
    bob.expect_line("ann: hello bob")?;
    bob.says("hello \u{1b}[2Jann")?;
    ann.expect_line("bob: hello [2Jann")?;
    ann.leaves()?;
    bob.expect_line("* ann has left")?;
    println!("chat: ann and bob have talked");
    for (who, words, password, why) in [
        (
            "bob",
            &[][..],
            "a wrong one",
            "no such account with this password",
        ),
        (
            "mallory",
            &[],
            "a wrong one",
            "no such account with this password",
        ),
        ("bob", &["--register"], "a wrong one", "the name is taken"),
        ("bob", &[], "short", "a password has 8 to 256 bytes"),
        (
            "b b",
            &[],
            "a wrong one",
            "an account name has 1 to 64 of a-z 0-9 . _ - @ +",
        ),
    ] {
        client(who, words, password)?.fails(why)?;
        println!("chat: {who} was refused: {why}");
    }
    bob.leaves()?;
    // A returning user needs only the password.
    let mut bob = client("bob", &[], "battery staple")?;
    bob.expect_line("* bob is here")?;
    bob.leaves()?;
    let other = folder.0.join("other.pem");
    // This server's authority is a different one, created at its own start.
    let stranger = self::server(&other, "none")?;
    let words = ["client", &stranger.first_word()?, "bob"];
    Started::new(&words, &ca, &["battery staple"])?.fails(STRANGE)?;
    println!("chat: a lobby was not believed: {STRANGE}");
    for (fault, why) in [
        ("expired", "the time of its certificate is over"),
        ("other-name", "its certificate is for another host"),
    ] {
        let wrong = self::server(&other, fault)?;
        let words = ["client", &wrong.first_word()?, "bob"];
        Started::new(&words, &other, &["battery staple"])?.fails(why)?;
        println!("chat: a lobby was not believed: {why}");
    }
    println!("chat: all as the script says");
    Ok(())
}

fn server(ca: &Path, fault: &str) -> Result<Started, Box<dyn Error>> {
    let words = ["server", "127.0.0.1:0", "127.0.0.1:0", "--fault", fault];
    Started::new(&words, ca, &[])
}

/// A child process, killed when this is dropped, and the lines that it prints.
struct Started {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Started {
    fn new(words: &[&str], ca: &Path, typed: &[&str]) -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(words).arg("--ca").arg(ca);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().ok_or("a process has no output")?;
        let (tell, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        let mut started = Self {
            child,
            stdin,
            lines,
        };
        for line in typed {
            started.says(line)?;
        }
        Ok(started)
    }

    fn says(&mut self, line: &str) -> Result<(), Box<dyn Error>> {
        let stdin = self.stdin.as_mut().ok_or("the process has been left")?;
        Ok(stdin.write_all(format!("{line}\n").as_bytes())?)
    }

    /// Waits for a line and skips all lines before it.
    fn expect_line(&mut self, line: &str) -> Result<(), Box<dyn Error>> {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(incoming) if incoming == line => return Ok(()),
                Ok(_) => {}
                Err(_) => return Err(format!("{line:?} did not come: {}", self.end()).into()),
            }
        }
    }

    /// Returns the first word of the first line.
    fn first_word(&self) -> Result<String, Box<dyn Error>> {
        let line = self.lines.recv_timeout(PATIENCE)?;
        let word = line.split(' ').next().unwrap_or_default();
        Ok(word.to_owned())
    }

    /// Closes the child's stdin and checks that it exits with success.
    fn leaves(&mut self) -> Result<(), Box<dyn Error>> {
        self.stdin = None;
        if self.child.wait()?.success() {
            Ok(())
        } else {
            Err(self.end().into())
        }
    }

    /// Checks that the child fails and that its only output is a message which ends with `why`.
    fn fails(&mut self, why: &str) -> Result<(), Box<dyn Error>> {
        let status = self.child.wait()?;
        let said = self.end();
        let is_told = said.starts_with("chat: ") && said.ends_with(&format!("{why}\n"));
        if status.success() || !is_told || self.lines.try_recv().is_ok() {
            return Err(format!("it should have failed, {why}: {status}, {said}").into());
        }
        Ok(())
    }

    /// Kills the child and returns its stderr.
    fn end(&mut self) -> String {
        self.child.kill().ok();
        let mut said = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut said).ok();
        }
        said
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // If it has already exited, there is nothing to kill.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A folder which is removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, Box<dyn Error>> {
        let name = format!("tickwire-chat-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}
