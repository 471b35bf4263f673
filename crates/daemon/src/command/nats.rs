//! Options of a hub that keeps mail on NATS.

use std::path::PathBuf;

use clap::Args;
use hub_nats::{Credentials, NatsConfig, Sync, Tls};

/// Options of `hub run` for NATS.
#[derive(Args, Clone, Debug)]
pub struct NatsArgs {
    /// Keeps mail in `JetStream` on the servers of this cluster instead of a folder:
    /// nats://HOST:PORT or tls://HOST:PORT, separated by commas.
    #[arg(long, value_name = "URLS", value_delimiter = ',')]
    nats: Vec<String>,
    /// Names the log on the servers. Hubs with the same name take over from each other.
    #[arg(long, value_name = "NAME", default_value = "tickwire")]
    nats_name: String,
    /// Copies of the log, 1 to 5, when it is created.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    nats_replicas: usize,
    /// Credentials for NATS: a .creds file.
    #[arg(long, value_name = "FILE")]
    nats_credentials: Option<PathBuf>,
    /// Authority that the certificates of the servers are checked by, PEM; default: those of the system.
    #[arg(long, value_name = "FILE")]
    nats_ca: Option<PathBuf>,
    /// Does not check the certificates: an attacker that redirects the connection reads all mail.
    #[arg(long, conflicts_with = "nats_ca")]
    nats_insecure: bool,
    /// States that the servers sync before each answer (`sync_interval: always`).
    #[arg(long)]
    nats_synced: bool,
}

impl NatsArgs {
    /// Returns the configuration, if servers are given.
    pub(super) fn config(&self) -> Option<NatsConfig> {
        if self.nats.is_empty() {
            return None;
        }
        let mut config = NatsConfig::new(self.nats.clone());
        config.name.clone_from(&self.nats_name);
        config.replicas = self.nats_replicas;
        if let Some(path) = &self.nats_credentials {
            config.credentials = Credentials::File(path.clone());
        }
        if let Some(path) = &self.nats_ca {
            config.tls = Tls::Authority(path.clone());
        } else if self.nats_insecure {
            config.tls = Tls::Insecure;
        }
        if self.nats_synced {
            config.sync = Sync::Always;
        }
        Some(config)
    }
}
