//! Results of commands: an exit status for scripts and a sentence for people.

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use relay_mesh::config_text::TextError;
use serde_json::json;
use servicer::HubNodeError;

/// Exit status of a command; each number has one meaning in all commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// A check was negative: what was asked about is wrong or missing, such as no link to the hub,
    /// no path, or no active document. Also used if a process of the command failed.
    CheckFailed = 1,
    /// The command line, an environment variable, or a file that one of them names is wrong.
    Usage = 2,
    /// The other side could not be reached: no response, a different server, or a host without an
    /// address.
    Unreachable = 3,
    /// The system or the other side refused: a port or folder in use, an existing file, a full
    /// disk, a wrong token, a rejected document.
    Refused = 4,
    /// It took too long.
    TimedOut = 5,
}

impl Exit {
    /// Returns the number.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Prints to stderr, in one line, why `program` failed. If stderr cannot be written, only the exit
/// status tells.
pub fn print_error(program: &str, why: &dyn fmt::Display) {
    let line = format!("{program}: {why}\n");
    io::stderr().write_all(line.as_bytes()).ok();
}

/// Why a command or process failed: one sentence that names what to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit status.
    pub exit: Exit,
    /// The sentence; holds no secret.
    pub sentence: String,
    /// The file with the error.
    pub file: Option<PathBuf>,
    /// The line of the error in that file, from 1.
    pub line: Option<u32>,
    /// The field, option or variable with the error.
    pub field: Option<String>,
}

impl Failure {
    /// Makes a failure with this sentence.
    pub fn new(exit: Exit, sentence: impl fmt::Display) -> Self {
        Self {
            exit,
            sentence: sentence.to_string(),
            file: None,
            line: None,
            field: None,
        }
    }

    /// Makes a usage failure in the file at `path`.
    pub fn file(path: &Path, sentence: impl fmt::Display) -> Self {
        Self::usage(format_args!("{}: {sentence}", path.display())).in_file(path)
    }

    /// Makes a usage failure for a parse error in the file at `path`.
    pub fn text(path: &Path, error: &TextError) -> Self {
        let mut failure = Self::file(path, error);
        failure.line = u32::try_from(error.line).ok().filter(|line| *line > 0);
        failure.field = Some(error.field.clone()).filter(|field| !field.is_empty());
        failure
    }

    /// Sets the file, for programs; the sentence names it for people.
    #[must_use]
    pub fn in_file(mut self, path: &Path) -> Self {
        self.file = Some(path.to_owned());
        self
    }

    /// Sets the field, option or variable, for programs.
    #[must_use]
    pub fn in_field(mut self, name: impl Into<String>) -> Self {
        self.field = Some(name.into());
        self
    }

    /// Prints the failure to stderr as one line of JSON: an object with `schema`, `code`,
    /// `message`, `file`, `line` and `field`, the last three of which may be `null`. If stderr
    /// cannot be written, only the exit status tells.
    pub(crate) fn print_json_error(&self) {
        let file = self.file.as_ref().map(|path| path.display().to_string());
        let object = json!({
            "schema": 1,
            "code": self.exit.code(),
            "message": self.sentence,
            "file": file,
            "line": self.line,
            "field": self.field,
        });
        let line = format!("{object}\n");
        io::stderr().write_all(line.as_bytes()).ok();
    }

    /// Makes a usage failure: the command line or a file is wrong.
    pub fn usage(sentence: impl fmt::Display) -> Self {
        Self::new(Exit::Usage, sentence)
    }

    pub(crate) fn thread(error: impl fmt::Display) -> Self {
        Self::refused(format_args!("a thread cannot be started: {error}"))
    }

    /// Makes a failure of the system or of another process.
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

impl From<HubNodeError> for Failure {
    fn from(error: HubNodeError) -> Self {
        match error {
            HubNodeError::NoHub | HubNodeError::Key(_) => Self::usage(error),
            HubNodeError::Random(_) => Self::new(Exit::CheckFailed, error),
            HubNodeError::Spawn(_) | _ => Self::refused(error),
        }
    }
}

const SYSTEM_FAULTS: [(io::ErrorKind, &str); 4] = [
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

/// An error of the system, in words for the person who named the file.
pub(crate) struct SystemFault<'a>(pub(crate) &'a io::Error);

impl fmt::Display for SystemFault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = SYSTEM_FAULTS
            .iter()
            .find(|(kind, _)| *kind == self.0.kind());
        match known {
            Some((_, text)) => f.write_str(text),
            None => self.0.fmt(f),
        }
    }
}
