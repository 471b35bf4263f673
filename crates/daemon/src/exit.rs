//! How a command ends: a code for scripts, a sentence for people.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

/// What the exit status of a command says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// A check failed, or a process could not go on.
    CheckFailed = 1,
    /// The command line, or a file that it names, is wrong.
    Usage = 2,
    /// Nobody answers.
    Unreachable = 3,
    /// The system or another process refuses: a busy port, a folder in use, a file that exists.
    Refused = 4,
    /// It took too long.
    TimedOut = 5,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::CheckFailed => 1,
            Exit::Usage => 2,
            Exit::Unreachable => 3,
            Exit::Refused => 4,
            Exit::TimedOut => 5,
        })
    }
}

/// Says on stderr, in one line, why `who` ends.
///
/// Where stderr cannot be written, the exit status alone says it.
pub(crate) fn say_why(who: &str, why: &dyn fmt::Display) {
    let line = format!("{who}: {why}\n");
    io::stderr().write_all(line.as_bytes()).ok();
}

/// Why a command or process ends early: one sentence that names what to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What the exit status shall say.
    pub exit: Exit,
    /// For people; holds no secret.
    pub sentence: String,
}

impl Failure {
    /// Makes a failure of what `sentence` shows.
    pub fn new(exit: Exit, sentence: impl fmt::Display) -> Self {
        Self {
            exit,
            sentence: sentence.to_string(),
        }
    }

    /// Makes a failure for whoever wrote the command line or a file.
    pub fn usage(sentence: impl fmt::Display) -> Self {
        Self::new(Exit::Usage, sentence)
    }

    /// Makes a failure of what the system or another process does not give.
    pub fn refused(sentence: impl fmt::Display) -> Self {
        Self::new(Exit::Refused, sentence)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Failure {}

/// What the system refused of a file, in words for whoever named the file.
pub(crate) struct SystemFault<'a>(pub(crate) &'a io::Error);

impl fmt::Display for SystemFault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.0.kind();
        let words = [
            (io::ErrorKind::NotFound, "there is no such file"),
            (
                io::ErrorKind::IsADirectory,
                "this is a folder; expected a file",
            ),
            (
                io::ErrorKind::PermissionDenied,
                "this user may not open the file",
            ),
            (io::ErrorKind::InvalidData, "the text is not UTF-8"),
        ];
        match words.iter().find(|(of, _)| *of == kind) {
            Some((_, said)) => f.write_str(said),
            None => self.0.fmt(f),
        }
    }
}
