//! `tickwire relay`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::log::log;
use crate::exit::print_error;
use crate::relay::{self, StopOn};

/// How to run a node of the mesh.
#[derive(Args, Clone, Debug)]
pub struct RunRelay {
    /// Its configuration, JSON.
    #[arg(long)]
    config: PathBuf,
    /// Ends in order when stdin closes, and at signals as any program.
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
