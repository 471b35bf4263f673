//! `tickwire hub`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::host::HostPort;
use super::{LINGER, LOOK, StdinEnd, log, say};
use crate::exit::Failure;
use crate::role::hub::{HubOptions, HubProcess};
use crate::trust;

/// What can be done with a hub.
#[derive(Clone, Debug, Subcommand)]
pub enum HubCommand {
    /// Runs one until it is killed, which loses nothing that it acknowledged.
    Run(RunHub),
}

/// How to run a hub.
#[derive(Args, Clone, Debug)]
pub struct RunHub {
    /// Its identity file; the join file lists its key as a hub.
    #[arg(long)]
    identity: PathBuf,
    /// The join file.
    #[arg(long)]
    join_file: PathBuf,
    /// Where it keeps mail; made where it does not exist.
    #[arg(long)]
    data: PathBuf,
    /// Where it listens, as HOST:PORT; the join file's address by default.
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<HostPort>,
    /// Ends in order when stdin closes.
    #[arg(long)]
    end_with_stdin: bool,
}

impl HubCommand {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let Self::Run(options) = self;
        options.run()
    }
}

impl RunHub {
    fn run(&self) -> Result<(), Failure> {
        log()?;
        let identity = trust::read_identity(&self.identity)?;
        let join_file = trust::read_join_file(&self.join_file)?;
        let mut options = HubOptions::new(&identity, join_file, &self.data);
        options.listen = self.listen.as_ref().map(HostPort::listen).transpose()?;
        let hub = HubProcess::start(options)?;
        // Whoever started it may not listen.
        say(&format!(
            "hub {} listens on {}",
            identity.node_id(),
            hub.address()
        ))
        .ok();
        let end = self.end_with_stdin.then(StdinEnd::watch).transpose()?;
        while !end.as_ref().is_some_and(StdinEnd::has_come) {
            hub.wait(LOOK)?;
        }
        hub.shutdown(LINGER);
        Ok(())
    }
}
