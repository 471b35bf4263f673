//! A server, and the log taken over on it.

use std::sync::Arc;

use crate::config::{Durability, NatsConfig};
use crate::error::NatsError;
use crate::lease::{Holding, Lease};
use crate::link::{Link, LinkStats};
use crate::log_stream::LogStream;
use crate::segments::StreamSegments;
use crate::version::Version;

/// A connection to a NATS server that may hold the log.
#[derive(Debug)]
pub struct NatsServer {
    link: Arc<Link>,
}

impl NatsServer {
    /// Connects, and checks the server's version and that JetStream is enabled.
    ///
    /// # Errors
    ///
    /// [`NatsError`]: the configuration is invalid, no server answers, or it is too old.
    pub fn connect(config: NatsConfig) -> Result<Self, NatsError> {
        config.check()?;
        let link = Link::connect(config)?;
        Ok(Self {
            link: Arc::new(link),
        })
    }

    /// Returns the server's version.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        Version::parse(&self.link.client.server_info().version)
    }

    /// Waits until no other hub holds the lease, takes it, fences every earlier writer, and reads
    /// which message holds what. Returns `None` if `keep_waiting` returned false; it is asked
    /// several times a second. `owner` is what other hubs log while they wait.
    ///
    /// # Errors
    ///
    /// [`NatsError`]: the server does not answer, or a stream of this name would lose mail.
    pub fn take_over(
        &self,
        owner: &str,
        keep_waiting: impl FnMut() -> bool,
    ) -> Result<Option<(StreamSegments, Watch)>, NatsError> {
        let link = &self.link;
        let config = &link.config;
        let stream = link.block_on(LogStream::open(&link.context, config))?;
        let durability = config.durability(stream.replicas);
        // Two processes of one name are still two owners.
        let owner = format!("{owner} {}", link.client.new_inbox());
        let Some(lease) = link.block_on(Lease::acquire(link, &owner, keep_waiting))? else {
            return Ok(None);
        };
        let holding = lease.hold(link);
        let segments = StreamSegments::take_over(Arc::clone(link), stream)?;
        let watch = Watch {
            link: Arc::clone(link),
            durability,
            _holding: holding,
        };
        Ok(Some((segments, watch)))
    }
}

/// The state of a log that was taken over. Dropping it returns the lease, so drop it last.
#[derive(Debug)]
pub struct Watch {
    link: Arc<Link>,
    durability: Durability,
    _holding: Holding,
}

impl Watch {
    /// Returns why the log is lost to this hub, if it is: end the process.
    #[must_use]
    pub fn lost(&self) -> Option<String> {
        self.link.shared.lost()
    }

    /// Returns what an acknowledged mail outlives.
    #[must_use]
    pub const fn durability(&self) -> Durability {
        self.durability
    }

    /// Returns the counters of the connection.
    #[must_use]
    pub fn stats(&self) -> LinkStats {
        self.link.shared.stats()
    }
}
