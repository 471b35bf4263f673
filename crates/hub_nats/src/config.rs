//! Address of the server, credentials, and limits.

use core::fmt;
use core::time::Duration;
use std::path::PathBuf;

use crate::error::NatsError;

/// A NATS server and the names used on it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NatsConfig {
    /// Addresses of the servers of one cluster, `nats://host:4222` or `tls://host:4222`.
    pub servers: Vec<String>,
    /// Names the hub on the server: the stream `NAME-hub`, its subjects `NAME.hub.>`, and the bucket
    /// `NAME-hub-lease`. 1 to 32 of `a-z`, `0-9`, `-` and `_`. Default `tickwire`.
    pub name: String,
    /// Copies of the stream and the lease, 1 to 5; default 1. It counts when they are created.
    pub replicas: usize,
    /// How the hub proves its identity to the server.
    pub credentials: Credentials,
    /// Whether and how the server's certificate is checked.
    pub tls: Tls,
    /// How often the server syncs, as its operator has set it; a client cannot ask for it.
    pub sync: Sync,
    /// Time after which a request is repeated. Default 2 s.
    pub request_timeout: Duration,
    /// Time for which a write is repeated while the server does not answer, for example during the
    /// election of a leader, and for which a lease may stay unrenewed. After it the log has failed,
    /// as a disk does. Default 20 s.
    pub outage_max: Duration,
    /// Time after which the lease of a hub that no longer renews it passes to another. Default 6 s.
    pub lease_ttl: Duration,
    /// Bytes of the newest messages kept in memory, so that fresh mail is read without a round
    /// trip. Default 64 MiB.
    pub cache_bytes: usize,
    /// Size of all segments, bytes. When it is reached, mail waits until acknowledgements have freed a
    /// segment. Default 4 GiB. Set it below the limit of the account.
    pub bytes_max: u64,
}

impl NatsConfig {
    /// Returns the defaults, with the addresses of the servers.
    #[must_use]
    pub fn new(servers: Vec<String>) -> Self {
        Self {
            servers,
            name: "tickwire".to_owned(),
            replicas: 1,
            credentials: Credentials::None,
            tls: Tls::ByAddress,
            sync: Sync::default(),
            request_timeout: Duration::from_secs(2),
            outage_max: Duration::from_secs(20),
            lease_ttl: Duration::from_secs(6),
            cache_bytes: 64 << 20,
            bytes_max: 4 << 30,
        }
    }

    pub(crate) fn check(&self) -> Result<(), NatsError> {
        let is_name =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
        if self.servers.is_empty() {
            return Err(NatsError::config("no server is given"));
        }
        if !(1..=32).contains(&self.name.len()) || !self.name.bytes().all(is_name) {
            return Err(NatsError::config(
                "the name must be 1 to 32 characters of a-z, 0-9, - and _",
            ));
        }
        if !(1..=5).contains(&self.replicas) {
            return Err(NatsError::config("replicas must be 1 to 5"));
        }
        if self.lease_ttl < Duration::from_millis(500) {
            return Err(NatsError::config("the lease must last at least 0.5 s"));
        }
        Ok(())
    }

    pub(crate) fn stream(&self) -> String {
        format!("{}-hub", self.name)
    }

    pub(crate) fn lease_bucket(&self) -> String {
        format!("{}-hub-lease", self.name)
    }

    /// Subject of all messages: `NAME.hub`.
    pub(crate) fn prefix(&self) -> String {
        format!("{}.hub", self.name)
    }

    pub(crate) const fn durability(&self, replicas: usize) -> Durability {
        match self.sync {
            Sync::Always => Durability::Synced,
            Sync::Every(_) if replicas >= 3 => Durability::Replicated(replicas),
            Sync::Every(interval) => Durability::Periodic(interval),
        }
    }
}

/// Proof of identity.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Credentials {
    /// None; the server admits anybody, or knows the address.
    #[default]
    None,
    /// A `.creds` file with a JWT and a seed.
    File(PathBuf),
    /// Name and password.
    User {
        /// The name.
        user: String,
        /// The password.
        password: Secret,
    },
    /// A token.
    Token(Secret),
}

/// A text that its `Debug` omits.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Takes the text.
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    pub(crate) fn reveal(&self) -> String {
        self.0.clone()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Encryption of the connection.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Tls {
    /// TLS if the address begins with `tls://` or the server requires it; certificates are checked
    /// by the system's roots.
    #[default]
    ByAddress,
    /// TLS; certificates are checked by the system's roots.
    System,
    /// TLS; the certificate is checked by this authority, a PEM file.
    Authority(PathBuf),
    /// TLS without a check of the certificate: an attacker that redirects the connection reads all mail.
    Insecure,
}

/// How often a server syncs its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Before it answers: `sync_interval: always`.
    Always,
    /// After this time; 2 minutes unless configured.
    Every(Duration),
}

impl Default for Sync {
    fn default() -> Self {
        Self::Every(Duration::from_secs(120))
    }
}

/// What an acknowledged mail outlives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// The end of any process, and a loss of power.
    Synced,
    /// The end of any process, and the loss of fewer than half of these servers.
    Replicated(usize),
    /// The end of any process; a loss of power loses what the server wrote in this time.
    Periodic(Duration),
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Synced => f.write_str("synced before each answer"),
            Self::Replicated(count) => write!(f, "written by most of {count} servers"),
            Self::Periodic(interval) => {
                let seconds = interval.as_secs();
                if seconds >= 60 && seconds.is_multiple_of(60) {
                    write!(f, "synced every {} min by the server", seconds / 60)
                } else {
                    write!(f, "synced every {} s by the server", interval.as_secs_f32())
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_names_replicas_and_lease_are_checked() {
        let config = NatsConfig::new(vec!["nats://a:1".to_owned()]);
        assert!(config.check().is_ok());
        let mut wrong = Vec::new();
        for name in ["", "a.b", "A", "a b", "x".repeat(33).as_str()] {
            let mut config = config.clone();
            name.clone_into(&mut config.name);
            wrong.push(config);
        }
        for replicas in [0, 6] {
            let mut config = config.clone();
            config.replicas = replicas;
            wrong.push(config);
        }
        let mut config = config;
        config.lease_ttl = Duration::from_millis(499);
        wrong.push(config.clone());
        config.lease_ttl = Duration::from_secs(1);
        config.servers.clear();
        wrong.push(config);
        for config in wrong {
            assert!(config.check().is_err(), "{config:?}");
        }
    }

    #[test]
    fn durability_is_what_the_operator_and_the_replicas_give() {
        let mut config = NatsConfig::new(Vec::new());
        let text = |config: &NatsConfig, replicas| config.durability(replicas).to_string();
        assert_eq!(text(&config, 1), "synced every 2 min by the server");
        assert_eq!(text(&config, 3), "written by most of 3 servers");
        config.sync = Sync::Every(Duration::from_millis(1_500));
        assert_eq!(text(&config, 1), "synced every 1.5 s by the server");
        config.sync = Sync::Always;
        assert_eq!(text(&config, 1), "synced before each answer");
    }

    #[test]
    fn a_password_is_not_printed() {
        let mut config = NatsConfig::new(Vec::new());
        config.credentials = Credentials::User {
            user: "hub".to_owned(),
            password: Secret::new("hunter2".to_owned()),
        };
        assert!(!format!("{config:?}").contains("hunter2"));
    }
}
