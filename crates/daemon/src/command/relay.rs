//! `tickwire relay`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::log::log;
use crate::exit::print_error;
use crate::relay::{self, StopOn};

/// Options of `relay`.
#[derive(Args, Clone, Debug)]
pub struct RunRelay {
    /// Configuration file, JSON.
    #[arg(long)]
    config: PathBuf,
    /// Ends in order when stdin closes; a signal ends it at once.
    #[arg(long)]
    end_with_stdin: bool,
}

impl RunRelay {
    pub(super) fn run(&self) -> ExitCode {
        let ending = if self.end_with_stdin {
            StopOn::StdinClosed
        } else {
            StopOn::Signal
        };
        if let Err(failure) = log() {
            print_error("tickwire relay", &failure);
            return failure.exit.into();
        }
        relay::main(&self.config, ending)
    }
}
