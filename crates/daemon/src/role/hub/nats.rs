//! A hub's store in JetStream of NATS.

use std::net::SocketAddr;

use crypto::Ring;
use hub::{LogId, OpenFailure, Shard, Store, StoreConfig};
use hub_nats::{NatsConfig, NatsError, NatsServer, StreamSegments, Watch, store_config};

use super::log_recovery;
use crate::exit::{Exit, Failure};
use crate::trust;

/// Takes the log over once no other hub holds it; `None` if `keep_waiting` returned false.
pub(super) fn take_over(
    config: &NatsConfig,
    limits: StoreConfig,
    listen: SocketAddr,
    keep_waiting: impl FnMut() -> bool,
) -> Result<Option<(Store<StreamSegments>, Watch)>, Failure> {
    let mut config = config.clone();
    // Each shard has a log; the first one keeps the name, so that a single hub that becomes one of several
    // finds its log, and refuses it.
    match limits.shard.map_or(0, Shard::index) {
        0 => {}
        index => config.name = format!("{}-{index}", config.name),
    }
    let server = NatsServer::connect(config.clone()).map_err(|error| failure(&error))?;
    let process = std::process::id();
    let owner = format!("the hub on {listen}, process {process}");
    let taken = server.take_over(&owner, keep_waiting);
    let Some((segments, watch)) = taken.map_err(|error| failure(&error))? else {
        return Ok(None);
    };
    let log = LogId(trust::random_instance(&mut Ring::new())?.0);
    let store = Store::open(segments, store_config(limits), log);
    let store = store.map_err(|OpenFailure { error, .. }| {
        let sentence = format_args!("the log {} on NATS: {error}", config.name);
        Failure::new(Exit::CheckFailed, sentence)
    })?;
    log_recovery(&store.recovery());
    let durability = watch.durability();
    tracing::info!(log = config.name, %durability, "mail is kept on NATS");
    Ok(Some((store, watch)))
}

fn failure(error: &NatsError) -> Failure {
    match error {
        NatsError::Config(_) => Failure::usage(error),
        NatsError::Unreachable(_) | NatsError::Request(_) => Failure::new(Exit::Unreachable, error),
        NatsError::Version { .. }
        | NatsError::NoJetStream
        | NatsError::Stream(_)
        | NatsError::Fenced(_)
        | _ => Failure::refused(error),
    }
}
