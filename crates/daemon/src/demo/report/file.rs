//! The file that a report is written to.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{PlanOptions, Report};
use crate::exit::Failure;

/// Holds, from the start, the report of this run and of no other.
#[derive(Debug)]
pub struct ReportFile {
    path: PathBuf,
}

impl ReportFile {
    /// Takes the place of what `path` holds: until the run has ended, and for ever where something
    /// ends it that leaves it no time, the report says that it did not.
    ///
    /// # Errors
    ///
    /// One sentence that names the file.
    pub fn create(path: &Path, options: &PlanOptions) -> Result<Self, Failure> {
        let mut file = Self {
            path: path.to_owned(),
        };
        let unended = Report::new(options).broken_off("it was ended before that");
        file.replace(&unended, Kind::Provisional)?;
        Ok(file)
    }

    /// Writes the report of the run.
    ///
    /// # Errors
    ///
    /// One sentence that names the file.
    pub fn write(&mut self, report: &Report) -> Result<(), Failure> {
        self.replace(report, Kind::Last)
    }

    fn replace(&mut self, report: &Report, kind: Kind) -> Result<(), Failure> {
        let fail = |error: io::Error| {
            let name = self.path.display();
            Failure::usage(format_args!("{name}: report: {error}"))
        };
        let text = serde_json::to_string_pretty(report).map_err(|error| fail(error.into()))?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        let mut file = options.open(&self.path).map_err(fail)?;
        // What is written to a pipe stays.
        let is_kept = file.metadata().map_err(fail)?.is_file();
        if is_kept || kind == Kind::Last {
            file.write_all((text + "\n").as_bytes()).map_err(fail)?;
        }
        Ok(())
    }
}

/// Which of the two reports of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Provisional,
    Last,
}
