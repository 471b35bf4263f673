//! How a command ends: a code for scripts, a sentence for people.

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use relay_mesh::config_text::TextError;
use serde_json::json;

/// What the exit status of a command says; each number has one meaning in all commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// What was asked about is not as it should be, or is not there: no link to the hub, no path, no
    /// document in force. Also a process that could not go on.
    CheckFailed = 1,
    /// The command line, an environment variable, or a file that one of them names, is wrong.
    Usage = 2,
    /// Whoever was asked is not there: nobody answers, somebody else does, or the host has no address.
    Unreachable = 3,
    /// The system, or whoever was asked, does not do it: a busy port, a folder in use, a file that
    /// exists, a full disk, a wrong token, a document that is not accepted.
    Refused = 4,
    /// It took too long.
    TimedOut = 5,
}

impl Exit {
    /// Returns the number.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::CheckFailed => 1,
            Self::Usage => 2,
            Self::Unreachable => 3,
            Self::Refused => 4,
            Self::TimedOut => 5,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Says on stderr, in one line, why `who` ends.
///
/// Where stderr cannot be written, the exit status alone says it.
pub fn print_error(who: &str, why: &dyn fmt::Display) {
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
    /// The file that is at fault.
    pub file: Option<PathBuf>,
    /// The line of that file, from 1.
    pub line: Option<u32>,
    /// The field, option or variable that is at fault.
    pub field: Option<String>,
}

impl Failure {
    /// Makes a failure of what `sentence` shows.
    pub fn new(exit: Exit, sentence: impl fmt::Display) -> Self {
        Self {
            exit,
            sentence: sentence.to_string(),
            file: None,
            line: None,
            field: None,
        }
    }

    /// Makes a failure for whoever wrote the file at `path`, of what `sentence` shows.
    pub fn file(path: &Path, sentence: impl fmt::Display) -> Self {
        Self::usage(format_args!("{}: {sentence}", path.display())).in_file(path)
    }

    /// Makes a failure for the author of the file at `path`, whose text has `error`.
    pub fn text(path: &Path, error: &TextError) -> Self {
        let mut failure = Self::file(path, error);
        failure.line = u32::try_from(error.line).ok().filter(|line| *line > 0);
        failure.field = Some(error.field.clone()).filter(|field| !field.is_empty());
        failure
    }

    /// Says for programs which file is at fault; the sentence says it for people.
    #[must_use]
    pub fn in_file(mut self, path: &Path) -> Self {
        self.file = Some(path.to_owned());
        self
    }

    /// Says for programs which line of the file is at fault.
    #[must_use]
    pub const fn at_line(mut self, line: u32) -> Self {
        self.line = Some(line);
        self
    }

    /// Says for programs which field, option or variable is at fault.
    #[must_use]
    pub fn in_field(mut self, name: impl Into<String>) -> Self {
        self.field = Some(name.into());
        self
    }

    /// Says on stderr for programs, in one line, why a command ends: an object with `schema`, `code`,
    /// `message`, `file`, `line` and `field`, of which the last three may be `null`.
    ///
    /// Where stderr cannot be written, the exit status alone says it.
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

/// What a kind of error says of a file.
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

/// What the system refused of a file, in words for whoever named the file.
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
