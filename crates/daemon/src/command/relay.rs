//! `tickwire relay`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::log::log;
use crate::exit::say_why;
use crate::relay::{self, Ending};

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
            Ending::WithInput
        } else {
            Ending::BySignal
        };
        if let Err(failure) = log() {
            say_why("tickwire relay", &failure);
            return failure.exit.into();
        }
        relay::main(&self.config, ending)
    }
}
