//! `tickwire hub`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::host::HostPort;
use super::{POLL_INTERVAL, SHUTDOWN_TIMEOUT, StdinEnd, log, print_line};
use crate::exit::Failure;
use crate::role::hub::{HubOptions, HubProcess};
use crate::trust;

/// Commands of a hub.
#[derive(Clone, Debug, Subcommand)]
pub enum HubCommand {
    /// Runs a hub until it is killed, which loses no acknowledged message.
    Run(RunHub),
}

/// Options of `hub run`.
#[derive(Args, Clone, Debug)]
pub struct RunHub {
    /// Identity file; the join file lists its key as a hub.
    #[arg(long)]
    identity: PathBuf,
    /// Join file.
    #[arg(long)]
    join_file: PathBuf,
    /// Folder for mail; created if it does not exist.
    #[arg(long)]
    data: PathBuf,
    /// Address to listen on, as HOST:PORT; default: its address in the join file.
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
        // The reader of stdout may be gone.
        print_line(&format!(
            "hub {} listens on {}",
            identity.node_id(),
            hub.address()
        ))
        .ok();
        let end = self.end_with_stdin.then(StdinEnd::watch).transpose()?;
        while !end.as_ref().is_some_and(StdinEnd::has_come) {
            hub.wait(POLL_INTERVAL)?;
        }
        hub.shutdown(SHUTDOWN_TIMEOUT);
        Ok(())
    }
}
