//! `tickwire hub`.

mod folder;
mod key;
mod kv;
mod live;
mod mail;
mod person;
mod purge;
mod request;
mod stats;
mod watch;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use hub::{ClaimPolicy, HubConfig, OnFull};

use super::host::HostPort;
use super::log::log;
use super::{POLL_INTERVAL, Requests, StdinEnd, print_line};
use crate::exit::Failure;
use crate::hub_api::{ApiConfig, CertificateFiles, PersonPrefix};
use crate::role::hub::{HubOptions, HubProcess, limits};
use crate::signals::Signal;
use crate::trust;
pub use folder::{BackupFolder, CheckFolder, RestoreFolder};
pub use key::NewApiKey;
pub use kv::{DeleteKey, GetKey, KeyDurability, KvCommand, ListKeys, PutKey, SwapKey, WatchKeys};
pub use live::{KickPlayer, ListNodes, ListPlayers, PlainRequest};
pub use mail::{AckMail, ClearMail, ListMail, MailCommand, SendMail};
pub use person::{PersonArgs, PersonCommand};
pub use purge::PurgeMail;
pub use request::ApiArgs;
pub use stats::QueryStats;
pub use watch::WatchPresence;

/// Commands of a hub.
#[derive(Clone, Debug, Subcommand)]
pub enum HubCommand {
    /// Runs a hub until SIGTERM or SIGINT; SIGHUP makes it read the join file, the limits, and the API's keys
    /// and certificate again. Even if it is killed, no acknowledged mail is lost.
    Run(Box<RunHub>),
    /// Creates a key for the hub's HTTP API.
    Key(NewApiKey),
    /// Prints the nodes that have joined: id, role, services.
    Ls(ListNodes),
    /// Prints the players that are online, each with the node that holds it.
    Who(ListPlayers),
    /// Reads and changes a mailbox.
    #[command(subcommand)]
    Mail(MailCommand),
    /// Deletes all stored mail of a sender.
    Purge(PurgeMail),
    /// Reads, changes and watches keys.
    #[command(subcommand)]
    Kv(KvCommand),
    /// Exports or deletes all data of a player.
    #[command(subcommand)]
    Person(PersonCommand),
    /// Prints statistics: a table of rows by time and group, or the names of all series.
    Stats(Box<QueryStats>),
    /// Prints presence and its changes, one JSON object a line.
    Watch(WatchPresence),
    /// Asks the node of a player to disconnect it.
    Kick(KickPlayer),
    /// Drains the hub and ends its process.
    Drain(PlainRequest),
    /// Checks whether the hub runs; needs no key.
    Health(PlainRequest),
    /// Prints all counters in Prometheus text format.
    Metrics(PlainRequest),
    /// Copies the folder of a hub, which may run, and checks the copy.
    Backup(BackupFolder),
    /// Makes the folder of a hub from a backup, and checks it.
    Restore(RestoreFolder),
    /// Reads all segments of a folder and changes nothing; status 1 if acknowledged records are
    /// lost.
    Check(CheckFolder),
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
    #[cfg_attr(feature = "nats", arg(required_unless_present = "nats"))]
    #[cfg_attr(not(feature = "nats"), arg(required = true))]
    data: Option<PathBuf>,
    #[cfg(feature = "nats")]
    #[command(flatten)]
    nats: super::NatsArgs,
    /// Address to listen on, as HOST:PORT; default: its address in the join file.
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<HostPort>,
    /// Which claims of players are granted: of any node (`plain`), or with a grant of an issuer in the
    /// join file (`granted`).
    #[arg(long, value_enum, default_value_t = Claims::Plain)]
    claims: Claims,
    /// Address of the HTTP API, as HOST:PORT; default: no API.
    #[arg(long, value_name = "HOST:PORT", requires = "http_keys")]
    http: Option<HostPort>,
    /// Key file of the API; `hub key` writes it.
    #[arg(long, value_name = "FILE", requires = "http")]
    http_keys: Option<PathBuf>,
    /// Serves the API without TLS; on loopback addresses only.
    #[arg(long, requires = "http", conflicts_with = "http_certificate")]
    plain_http: bool,
    /// Certificate chain of the API, PEM.
    #[arg(
        long,
        value_name = "FILE",
        requires = "http",
        requires = "http_certificate_key"
    )]
    http_certificate: Option<PathBuf>,
    /// Private key of the certificate, PEM, mode 0600.
    #[arg(long, value_name = "FILE", requires = "http_certificate")]
    http_certificate_key: Option<PathBuf>,
    /// Beginning of a player's keys, for `hub person`; default player/{player}/.
    #[arg(long, value_name = "PREFIX", requires = "http")]
    person_prefix: Option<PersonPrefix>,
    /// What happens to a mail for a full mailbox.
    #[arg(long, value_enum, default_value_t)]
    mailbox_full: MailboxFull,
    /// File with limits of the hub, lines of NAME VALUE; SIGHUP makes the hub read it again.
    #[arg(long, value_name = "FILE")]
    limits: Option<PathBuf>,
    /// Ends in order when stdin closes.
    #[arg(long)]
    end_with_stdin: bool,
}

/// What happens to a mail for a full mailbox.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum MailboxFull {
    /// Its sender is rejected.
    #[default]
    Reject,
    /// The oldest mails are dropped.
    DropOldest,
    /// Mails of a lower priority are dropped.
    DropLowestPriority,
}

impl From<MailboxFull> for OnFull {
    fn from(policy: MailboxFull) -> Self {
        match policy {
            MailboxFull::Reject => Self::RejectSender,
            MailboxFull::DropOldest => Self::DropOldest,
            MailboxFull::DropLowestPriority => Self::DropLowestPriority,
        }
    }
}

/// Which claims the hub grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Claims {
    Plain,
    Granted,
}

impl HubCommand {
    pub(super) const fn is_json(&self) -> bool {
        match self {
            Self::Run(_) => false,
            Self::Key(key) => key.json,
            Self::Ls(list) => list.api.json,
            Self::Who(list) => list.api.json,
            Self::Mail(command) => command.is_json(),
            Self::Purge(purge) => purge.api.json,
            Self::Kv(command) => command.is_json(),
            Self::Person(command) => command.is_json(),
            Self::Stats(query) => query.api.json,
            Self::Watch(watch) => watch.api.json,
            Self::Kick(kick) => kick.api.json,
            Self::Drain(plain) | Self::Health(plain) | Self::Metrics(plain) => plain.api.json,
            Self::Backup(backup) => backup.json,
            Self::Restore(restore) => restore.json,
            Self::Check(check) => check.json,
        }
    }

    pub(super) fn run(&self) -> Result<(), Failure> {
        match self {
            Self::Run(options) => options.run(),
            Self::Key(key) => key.write(),
            Self::Ls(list) => list.show(),
            Self::Who(list) => list.show(),
            Self::Mail(command) => command.run(),
            Self::Purge(purge) => purge.run(),
            Self::Kv(command) => command.run(),
            Self::Person(command) => command.run(),
            Self::Stats(query) => query.show(),
            Self::Watch(watch) => watch.run(),
            Self::Kick(kick) => kick.send(),
            Self::Drain(drain) => drain.show("POST /v1/drain"),
            Self::Health(health) => health.show("GET /v1/health"),
            Self::Metrics(metrics) => metrics.show_text("GET /metrics"),
            Self::Backup(backup) => backup.run(),
            Self::Restore(restore) => restore.run(),
            Self::Check(check) => check.run(),
        }
    }
}

/// Longest time that a hub waits for open calls and slow nodes.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

impl RunHub {
    fn run(&self) -> Result<(), Failure> {
        log()?;
        let identity = trust::read_identity(&self.identity)?;
        let join_file = trust::read_join_file(&self.join_file)?;
        let data = self.data.as_deref().unwrap_or_else(|| Path::new(""));
        let mut options = HubOptions::new(&identity, join_file, data);
        #[cfg(feature = "nats")]
        {
            options.nats = self.nats.config();
        }
        options.store.on_full = self.mailbox_full.into();
        if let Some(path) = &self.limits {
            options.config = limits::read(path, &options.config)?;
        }
        options.listen = self.listen.as_ref().map(HostPort::listen).transpose()?;
        options.config.access.claims = match self.claims {
            Claims::Plain => ClaimPolicy::Plain,
            Claims::Granted => ClaimPolicy::Granted,
        };
        options.api = self.api()?;
        let stdin = self.end_with_stdin.then(StdinEnd::watch).transpose()?;
        // Before the start, which may take seconds: a signal must not kill the process.
        let requests = Requests::watch(stdin)?;
        let mut is_outdated = false;
        let started = HubProcess::start_when(options, || {
            let signal = requests.next();
            is_outdated |= signal == Some(Signal::HangUp);
            signal != Some(Signal::Stop)
        })?;
        let Some(hub) = started else {
            return Ok(());
        };
        if is_outdated {
            self.reload(&hub);
        }
        // The reader of stdout may be gone.
        print_line(&format!(
            "hub {} listens on {}",
            identity.node_id(),
            hub.address()
        ))
        .ok();
        if let Some(address) = hub.api_address() {
            let scheme = if self.plain_http { "http" } else { "https" };
            print_line(&format!("its API is at {scheme}://{address}")).ok();
        }
        loop {
            match requests.next() {
                Some(Signal::Stop) => break,
                Some(Signal::HangUp) => self.reload(&hub),
                None if hub.is_drain_requested() => break,
                None => hub.wait(POLL_INTERVAL)?,
            }
        }
        tracing::info!("shutting down");
        hub.shutdown(DRAIN_TIMEOUT)
    }

    fn api(&self) -> Result<Option<ApiConfig>, Failure> {
        let (Some(http), Some(keys)) = (&self.http, &self.http_keys) else {
            return Ok(None);
        };
        let certificate = match (&self.http_certificate, &self.http_certificate_key) {
            (Some(chain), Some(key)) => Some(CertificateFiles {
                chain: chain.clone(),
                key: key.clone(),
            }),
            (None, None) if self.plain_http => None,
            (_, _) => {
                let sentence = "the API needs --http-certificate and --http-certificate-key, or \
                                --plain-http on a loopback address";
                return Err(Failure::usage(sentence).in_field("--http"));
            }
        };
        let mut config = ApiConfig::new(http.listen()?, keys.clone(), certificate);
        if let Some(prefix) = &self.person_prefix {
            config.person_prefix = prefix.clone();
        }
        Ok(Some(config))
    }

    /// Reads the files again. The one in use stays if it is invalid.
    fn reload(&self, hub: &HubProcess) {
        let read = trust::read_join_file(&self.join_file);
        match read.and_then(|join_file| hub.set_join_file(join_file)) {
            Ok(()) => tracing::info!("the join file was read again"),
            Err(Failure { sentence, .. }) => {
                tracing::error!("the join file is not reloaded: {sentence}");
            }
        }
        if let Some(path) = &self.limits {
            let read = limits::read(path, &HubConfig::default());
            match read.and_then(|config| hub.set_limits(config)) {
                Ok(()) => tracing::info!("the limits were read again"),
                Err(Failure { sentence, .. }) => {
                    tracing::error!("the limits are not reloaded: {sentence}");
                }
            }
        }
        if let Err(Failure { sentence, .. }) = hub.reload_api() {
            tracing::error!("the API's files are not reloaded: {sentence}");
        }
    }
}
