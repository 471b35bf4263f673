//! Requests for what belongs to another of several hubs.

use std::sync::Arc;

use axum::RequestExt as _;
use axum::extract::{Path, RawPathParams, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hub::{JoinFile, Shard};
use wire::NodeId;

use super::operation::Operation;
use super::parameter;
use super::shared::Shared;
use crate::http::error_response::ErrorResponse;

/// The hub's part, and all hubs in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Hubs {
    own: Shard,
    nodes: Vec<NodeId>,
}

impl Hubs {
    pub(super) fn new(join_file: &JoinFile, hub: NodeId) -> Self {
        Self {
            own: join_file.shard_of(hub),
            nodes: join_file.hubs().map(|grant| grant.node).collect(),
        }
    }

    /// Returns the number of the hub that an operation on `part` of a path is about; `None` if it is about
    /// any, or the part is invalid.
    fn index_of(&self, operation: Operation, part: &str) -> Option<u8> {
        let part = Ok(Path(part.to_owned()));
        let count = self.own.count();
        match operation {
            Operation::SendMail
            | Operation::ReadMail
            | Operation::ClearMail
            | Operation::AckMail
            | Operation::Kick
            | Operation::Forward => {
                let player = parameter::player(part).ok()?;
                Some(Shard::of_player(player, count))
            }
            Operation::Cast => {
                let topic = parameter::name(part).ok()?;
                Some(Shard::of_topic(topic, count))
            }
            // Nodes use the keys and the statistics of the first hub.
            Operation::ListKeys
            | Operation::GetKey
            | Operation::PutKey
            | Operation::DeleteKey
            | Operation::GrantLease
            | Operation::RenewLease
            | Operation::EndLease
            | Operation::ListStatistics
            | Operation::QueryStatistics => Some(0),
            Operation::Health
            | Operation::Description
            | Operation::Metrics
            | Operation::Presence
            | Operation::Watch
            | Operation::Drain
            // Each hub has a part.
            | Operation::CountSent
            | Operation::PurgeSent
            | Operation::ExportPerson
            | Operation::DeletePerson => None,
        }
    }

    fn check(&self, operation: Operation, part: &str) -> Result<(), ErrorResponse> {
        let index = self.index_of(operation, part);
        match index.filter(|index| *index != self.own.index()) {
            None => Ok(()),
            Some(index) => {
                let node = self.nodes.get(usize::from(index));
                let node = node.map(NodeId::to_string).unwrap_or_default();
                let (own, count) = (self.own.index(), self.own.count());
                let detail = format!(
                    "this belongs to shard {index} of {count} (from 0), hub {node}; this is shard {own}"
                );
                let status = StatusCode::MISDIRECTED_REQUEST;
                Err(ErrorResponse::new(status, "other_shard", detail))
            }
        }
    }
}

/// Refuses a request that is about another hub.
pub(super) async fn check(
    State((shared, operation)): State<(Arc<Shared>, Operation)>,
    mut request: Request,
    next: Next,
) -> Response {
    if shared.hubs.own.is_partial() {
        let parts: Result<RawPathParams, _> = request.extract_parts().await;
        let part = parts.as_ref().ok().and_then(|parts| parts.iter().next());
        let part = part.map_or("", |(_, part)| part);
        if let Err(error) = shared.hubs.check(operation, part) {
            return error.into_response();
        }
    }
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use hub::join_file::{Grant, NetworkSecret};
    use hub::{Name, Role};
    use wire::ClientId;

    #[test]
    fn each_operation_is_for_the_hub_that_has_the_data() {
        let mut file = JoinFile::new(NetworkSecret::new([1; 32]));
        for byte in [7, 8, 9] {
            file.grants.push(Grant::new(Role::Hub, NodeId([byte; 32])));
        }
        let hubs = Hubs::new(&file, NodeId([8; 32]));
        let is_own = |operation, part: &str| hubs.check(operation, part).is_ok();
        for player in 0..40 {
            let expected = Shard::of_player(ClientId(player), 3) == 1;
            for operation in [Operation::SendMail, Operation::Kick, Operation::AckMail] {
                assert_eq!(is_own(operation, &player.to_string()), expected);
            }
        }
        for topic in ["news", "chat", "trade", "x", "y"] {
            let expected = Shard::of_topic(Name::new(topic).unwrap(), 3) == 1;
            assert_eq!(is_own(Operation::Cast, topic), expected);
        }
        assert!(!is_own(Operation::GetKey, "match/7"));
        assert!(is_own(Operation::Presence, ""));
        assert!(is_own(Operation::SendMail, "none"), "answered as invalid");
        let error = hubs.check(Operation::PutKey, "a").unwrap_err();
        let text = format!("{error:?}");
        let node = NodeId([7; 32]).to_string();
        assert!(text.contains("421") && text.contains(&node), "{text}");
        let single = Hubs::new(&JoinFile::new(NetworkSecret::new([1; 32])), NodeId([8; 32]));
        assert!(single.check(Operation::PutKey, "a").is_ok());
    }
}
