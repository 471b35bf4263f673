//! Messages of a mesh member, sent directly or forwarded by others.

use crypto::{Identity, Provider};
use netsim::provider::SimProvider;
use relay_mesh::DATAGRAM_MAX;
use relay_mesh::detour::Detoured;
use relay_mesh::flow_message::{FLOWS_PER_OPEN_MAX, FlowDatagram, FlowMessage, GAME_NAME_MAX};
use relay_mesh::game_edge::GameEdge;
use relay_mesh::link_state::{LinkRecord, Message, Network, NodeRecord};
use relay_mesh::link_terms::{KeyEpoch, LinkTerms};
use relay_mesh::path_probe::{PathEcho, PathPadding, PathProbe};
use relay_mesh::route_request::{FLOWS_MAX, RouteRelease, RouteReply, RouteRequest};
use wire::Seed;

/// Decodes label requests, replies and releases. An accepted one has one encoding and at most 64
/// flows.
pub fn route(data: &[u8]) {
    let mut again = Vec::new();
    if let Ok((id, request)) = RouteRequest::decode(data) {
        let count = usize::from(request.count());
        // A request can both release and bind 64 flows.
        assert!((1..=2 * FLOWS_MAX).contains(&count));
        request.encode(id, &mut again);
        assert_eq!(again, data, "two ways to write {request:?}");
    } else if let Ok((id, reply)) = RouteReply::decode(data) {
        if let RouteReply::Done(granted) = &reply {
            assert!(granted.len() <= FLOWS_MAX);
        }
        reply.encode(id, &mut again);
        assert_eq!(again, data, "two ways to write {reply:?}");
    } else if let Ok(release) = RouteRelease::decode(data) {
        assert!((1..=RouteRelease::COUNT_MAX).contains(&release.labels().len()));
        release.encode(&mut again);
        assert_eq!(again, data, "two ways to write {release:?}");
    }
}

/// Decodes messages about flows and game servers, and path probes. An accepted one has one
/// encoding.
pub fn flow(data: &[u8]) {
    if let Ok(message) = FlowMessage::decode(data) {
        if let FlowMessage::Open { game, .. } = &message {
            assert!(game.len() <= GAME_NAME_MAX);
        }
        if let FlowMessage::OpenMany { game, players, .. } = &message {
            assert!(game.len() <= GAME_NAME_MAX);
            assert!((1..=FLOWS_PER_OPEN_MAX).contains(&players.len()));
        }
        let mut again = Vec::new();
        message.encode(&mut again);
        assert_eq!(again, data, "two ways to write {message:?}");
    } else if let Ok(of) = FlowDatagram::decode(data) {
        assert!(of.datagram.len() <= DATAGRAM_MAX);
        let mut again = Vec::new();
        of.encode(&mut again);
        assert_eq!(again, data, "two ways to write {of:?}");
    } else if let Ok(edges) = GameEdge::decode(data) {
        assert!((1..=GameEdge::COUNT_MAX).contains(&edges.len()));
        let mut again = Vec::new();
        GameEdge::encode(&edges, &mut again);
        assert_eq!(again, data, "two ways to write {edges:?}");
    } else if let Ok(probe) = PathProbe::decode(data) {
        let mut again = Vec::new();
        probe.encode_padded(data.len(), &mut again);
        assert_eq!(again, data, "two ways to write {probe:?}");
    } else if let Ok(echo) = PathEcho::decode(data) {
        let mut again = Vec::new();
        echo.encode(&mut again);
        assert_eq!(again, data, "two ways to write {echo:?}");
    } else if let Ok(padding) = PathPadding::decode(data) {
        let mut again = Vec::new();
        padding.encode(data.len(), &mut again);
        assert_eq!(again, data, "two ways to write {padding:?}");
    }
}

/// Decodes control messages. An accepted one has one encoding, within the length limit.
pub fn control(data: &[u8]) {
    if let Ok(terms) = LinkTerms::decode(data) {
        let mut again = Vec::new();
        terms.encode(&mut again);
        assert_eq!(LinkTerms::decode(&again), Ok(terms));
        return;
    }
    if let Ok(epoch) = KeyEpoch::decode(data) {
        let mut again = Vec::new();
        epoch.encode(&mut again);
        assert_eq!(again, data);
        return;
    }
    if let Ok(detoured) = Detoured::decode(data) {
        let mut again = Vec::new();
        detoured.encode(&mut again);
        assert_eq!(again, data);
        return;
    }
    let Ok(message) = Message::decode(data) else {
        return;
    };
    assert!(data.len() <= Message::LEN_MAX);
    let mut again = Vec::new();
    message.encode(&mut again);
    assert_eq!(again, data, "two ways to write {message:?}");
}

/// Decodes node records. Signing an accepted record again covers the same bytes; it is valid in one
/// network only.
pub fn node_record(data: &[u8]) {
    let Ok(record) = NodeRecord::decode(data) else {
        return;
    };
    assert!(data.len() <= NodeRecord::LEN_MAX);
    let (mut provider, key) = signer();
    let again = record.sign(&mut provider, &key, NETWORK);
    let again = again.expect("seeded");
    assert!(is_same_body(&again, data), "two ways to write {record:?}");
    if record.verify(&provider, NETWORK, data) {
        assert!(!record.verify(&provider, Network([9; 16]), data));
    }
}

/// Decodes link records, with the same checks as node records.
pub fn link_record(data: &[u8]) {
    let Ok(record) = LinkRecord::decode(data) else {
        return;
    };
    assert!(data.len() <= LinkRecord::LEN_MAX);
    let (mut provider, key) = signer();
    let again = record.sign(&mut provider, &key, NETWORK, &[5; 32]);
    let again = again.expect("seeded");
    assert!(is_same_body(&again, data), "two ways to write {record:?}");
}

/// Returns whether two records differ only in their signatures.
fn is_same_body(one: &[u8], other: &[u8]) -> bool {
    let body = |bytes: &[u8]| {
        bytes
            .split_last_chunk::<64>()
            .map(|(body, _)| body.to_vec())
    };
    body(one).is_some() && body(one) == body(other)
}

/// The network of the corpus's records.
pub const NETWORK: Network = Network([3; 16]);

/// Returns the provider and key that sign records again.
#[must_use]
pub fn signer() -> (SimProvider, <SimProvider as Provider>::SigningKey) {
    let mut provider = SimProvider::new(Seed::from_number(9));
    let identity = Identity::generate(&mut provider).expect("seeded");
    let key = provider.signing_key(&identity).expect("a key of ours");
    (provider, key)
}
