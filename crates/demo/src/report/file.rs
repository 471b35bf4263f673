//! The file that a report is written to.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{PlanOptions, Report};
use daemon::exit::Failure;

/// Holds the report of this run from its start, so that no older one is taken for it.
#[derive(Debug)]
pub struct ReportFile {
    path: PathBuf,
    /// A pipe or device. It stays open: its reader ends with it, and a second open would wait for
    /// another reader.
    stream: Option<File>,
}

impl ReportFile {
    /// Replaces the contents of `path` by a report of an unfinished run. It stays if the run is
    /// killed.
    ///
    /// # Errors
    ///
    /// One sentence with the name of the file.
    pub fn create(path: &Path, options: &PlanOptions) -> Result<Self, Failure> {
        let mut report = Self {
            path: path.to_owned(),
            stream: None,
        };
        let file = report.open()?;
        let metadata = file.metadata().map_err(|error| report.failure(&error))?;
        if metadata.is_file() {
            let unended = Report::new(options).broken_off("it was ended before that");
            report.put(file, &unended)?;
        } else {
            report.stream = Some(file);
        }
        Ok(report)
    }

    /// Writes the report of the run.
    ///
    /// # Errors
    ///
    /// One sentence with the name of the file.
    pub fn write(mut self, report: &Report) -> Result<(), Failure> {
        let file = match self.stream.take() {
            Some(file) => file,
            None => self.open()?,
        };
        self.put(file, report)
    }

    fn open(&self) -> Result<File, Failure> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        let file = options.open(&self.path);
        file.map_err(|error| self.failure(&error))
    }

    fn put(&self, mut file: File, report: &Report) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(report).map_err(io::Error::from);
        text.and_then(|text| file.write_all((text + "\n").as_bytes()))
            .map_err(|error| self.failure(&error))
    }

    fn failure(&self, error: &io::Error) -> Failure {
        let name = self.path.display();
        Failure::usage(format_args!("{name}: report: {error}"))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;
    use std::io::{ErrorKind, Read};
    use std::os::unix::fs::OpenOptionsExt;
    use std::process::Command;

    use super::*;

    /// From open(2), on Linux.
    const O_NONBLOCK: i32 = 0o4_000;

    #[test]
    fn a_named_pipe_gets_the_last_report_only() {
        let name = format!("tickwire-report-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let made = Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let mut options = OpenOptions::new();
        let pipe = options.read(true).custom_flags(O_NONBLOCK).open(&path);
        let options = PlanOptions {
            seed: 7,
            seconds: 6,
            players: 1,
            ..PlanOptions::default()
        };
        let file = ReportFile::create(&path, &options);
        fs::remove_file(&path).unwrap();
        let mut pipe = pipe.unwrap();
        let read = pipe.read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(read, Err(ErrorKind::WouldBlock), "neither text nor the end");
        let report = Report {
            ok: true,
            ..Report::new(&options)
        };
        file.unwrap().write(&report).unwrap();
        let mut text = String::new();
        pipe.read_to_string(&mut text).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    }
}
