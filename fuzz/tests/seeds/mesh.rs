//! Corpus of mesh members.

use core::net::SocketAddr;

use fuzz::mesh_config::{document, envelope};
use fuzz::mesh_message::{NETWORK, signer};
use relay_mesh::cost::{Cost, LossCode};
use relay_mesh::detour::{Detoured, ForwardHop};
use relay_mesh::flow_message::{FlowDatagram, FlowMessage, FlowRefused};
use relay_mesh::game_edge::GameEdge;
use relay_mesh::hop::{
    HopForm, HopHeader, HopKey, HopKind, LabelName, NextLabel, Phase, Piece, ShardId,
};
use relay_mesh::link_state::{
    Have, LinkDelta, LinkRecord, Message, NodeRecord, Profile, Request, Roles, ShortId, Urgency,
};
use relay_mesh::link_terms::KeyEpoch;
use relay_mesh::measure::LinkReport;
use relay_mesh::path_probe::{DataReport, PathPadding, PathProbe, Sampling};
use relay_mesh::route_request::{
    Bind, Granted, GrantedNext, Refused, RequestId, RouteRelease, RouteReply, RouteRequest,
};
use relay_mesh::signed_config::{self, ConfigMessage, HeldVersion, Protocol};
use relay_mesh::trunk::{KIND, append};
use relay_mesh::{FlowEnd, FlowId};
use wire::{Instant, NodeId};

use crate::{Input, identity};

fn label(slot: u32) -> LabelName {
    LabelName {
        slot,
        generation: 1,
    }
}

pub(crate) fn all() -> Vec<Input> {
    [
        frames(),
        messages(),
        flows(),
        records(),
        detours(),
        vec![key_epoch()],
    ]
    .concat()
}

fn frames() -> Vec<Input> {
    let header = HopHeader {
        kind: HopKind::Sealed,
        epoch: 2,
        from: ShardId::FIRST,
        hops_left: 3,
        label: label(7),
        phase: Phase {
            key: 9,
            piece: Piece::First,
        },
        number: 0x0102_0304_0506,
    };
    let mut frame = header.encode().to_vec();
    frame.resize(60, 0x55);
    let bare = HopHeader {
        kind: HopKind::TagOnly,
        epoch: 0,
        from: ShardId::FIRST,
        ..header
    };
    let key = HopKey([3; 16]);
    let mut tagged = bare.encode().to_vec();
    tagged.extend(key.tag(&bare.encode(), 44));
    tagged.resize(44, 0x55);
    let mut trunk = vec![KIND];
    append(&frame, &mut trunk);
    append(&tagged, &mut trunk);
    vec![
        ("mesh_hop_header", "sealed", frame),
        ("mesh_hop_header", "tag_only", tagged),
        ("mesh_trunk", "both", trunk),
    ]
}

fn requests(node: NodeId) -> [(&'static str, RouteRequest); 4] {
    let bind = Bind {
        label: label(1),
        next: label(2).into(),
        grant: [9; 16],
    };
    let next = NextLabel {
        name: label(2),
        form: HopForm::TagOnly(HopKey([3; 16])),
    };
    let tagged = Bind { next, ..bind };
    let to = [&bind, &tagged].map(|bind| GrantedNext {
        next: bind.next.clone(),
        grant: bind.grant,
    });
    let to = to.to_vec();
    [
        (
            "transit",
            RouteRequest::ReserveTransit {
                previous: node,
                count: 3,
            },
        ),
        (
            "terminal",
            RouteRequest::ReserveTerminal {
                previous: node,
                flows: vec![FlowId(0), FlowId(5)],
                path: 1,
            },
        ),
        (
            "bind",
            RouteRequest::Bind {
                next: node,
                binds: vec![bind, tagged],
            },
        ),
        ("pass_on", RouteRequest::PassOn { next: node, to }),
    ]
}

fn messages() -> Vec<Input> {
    let node = NodeId([7; 32]);
    let requests = requests(node);
    let granted = Granted {
        label: label(4),
        form: HopForm::TagOnly(HopKey([3; 16])),
        grant: [6; 16],
    };
    let replies = [
        ("done", RouteReply::Done(vec![granted, Granted::NONE])),
        ("refused", RouteReply::Refused(Refused::TooMany)),
    ];
    let mut inputs = Vec::new();
    for (name, request) in requests {
        let mut out = Vec::new();
        request.encode(RequestId(8), &mut out);
        inputs.push(("mesh_route", name, out));
    }
    for (name, reply) in replies {
        let mut out = Vec::new();
        reply.encode(RequestId(8), &mut out);
        inputs.push(("mesh_route", name, out));
    }
    if let Some(release) = RouteRelease::new([label(1), label(2)]) {
        let mut out = Vec::new();
        release.encode(&mut out);
        inputs.push(("mesh_route", "release", out));
    }
    inputs
}

fn key_epoch() -> Input {
    let mut out = Vec::new();
    let epoch = KeyEpoch {
        from: ShardId::FIRST,
        to: ShardId::new(7).unwrap_or_default(),
        epoch: 258,
    };
    epoch.encode(&mut out);
    ("mesh_control", "key_epoch", out)
}

fn detours() -> Vec<Input> {
    let legs = [
        ("pass_on", ForwardHop::First),
        ("passed_on", ForwardHop::Second),
    ];
    legs.into_iter()
        .map(|(name, hop)| {
            let detoured = Detoured {
                hop,
                node: NodeId([8; 32]),
                datagram: &[0x40; 40],
            };
            let mut out = Vec::new();
            detoured.encode(&mut out);
            ("mesh_control", name, out)
        })
        .collect()
}

#[expect(clippy::too_many_lines, reason = "a list of inputs")]
fn flows() -> Vec<Input> {
    let flow = FlowId(5);
    let flows = [
        (
            "open",
            FlowMessage::Open {
                flow,
                player: SocketAddr::from(([192, 0, 2, 1], 258)),
                game: "doom".to_owned(),
                mode: None,
            },
        ),
        (
            "open_in_mode",
            FlowMessage::Open {
                flow,
                player: SocketAddr::from(([192, 0, 2, 1], 258)),
                game: "doom".to_owned(),
                mode: Some(relay_mesh::Mode::Dup),
            },
        ),
        (
            "open_many",
            FlowMessage::OpenMany {
                first: flow,
                game: "doom".to_owned(),
                players: [258, 259]
                    .map(|port| SocketAddr::from(([192, 0, 2, 1], port)))
                    .into(),
                mode: None,
            },
        ),
        (
            "opened",
            FlowMessage::Opened {
                flow,
                outcome: Err(FlowRefused::NoSocket),
            },
        ),
        (
            "close",
            FlowMessage::Close {
                flow,
                reason: FlowEnd::Evicted,
            },
        ),
    ];
    let probe = PathProbe {
        path: 1,
        number: 2,
        clock: 3,
        sampling: Sampling { key: 4, shift: 1 },
    };
    let (mut asked, mut answered) = (Vec::new(), Vec::new());
    probe.encode(&mut asked);
    probe
        .answer(Instant::from_nanos(9), 2, DataReport::default())
        .encode(&mut answered);
    let mut padded = Vec::new();
    PathPadding { path: 1 }.encode(9, &mut padded);
    let edges = [("doom", Cost::from_millis(3)), ("quake", Cost::UNROUTABLE)];
    let edges = edges.map(|(game, cost)| GameEdge {
        protocol: Protocol::Udp,
        game: game.to_owned(),
        cost,
    });
    let mut reported = Vec::new();
    GameEdge::encode(&edges, &mut reported);
    let mut datagram = Vec::new();
    let of = FlowDatagram {
        flow,
        datagram: &[7; 20],
    };
    of.encode(&mut datagram);
    let mut inputs: Vec<Input> = vec![
        ("mesh_flow", "datagram", datagram),
        ("mesh_flow", "game_edges", reported),
        ("mesh_flow", "probe", asked),
        ("mesh_flow", "echo", answered),
        ("mesh_flow", "padding", padded),
    ];
    for (name, message) in flows {
        let mut out = Vec::new();
        message.encode(&mut out);
        inputs.push(("mesh_flow", name, out));
    }
    inputs
}

fn records() -> Vec<Input> {
    let (mut provider, key) = signer();
    let node = NodeRecord {
        key: *identity().public_key(),
        version: 4,
        profile: Profile {
            roles: Roles::ALL,
            name: "lisbon".to_owned(),
            addresses: vec![SocketAddr::from(([192, 0, 2, 1], 9_000))],
        },
        neighbours: vec![ShortId([1; 8]), ShortId([2; 8])],
    };
    let node = node.sign(&mut provider, &key, NETWORK).unwrap();
    let hash = NodeRecord::hash(&provider, &node);
    let links = LinkRecord {
        origin: identity().node_id(),
        version: 5,
        list: [hash[0], hash[1]],
        is_leaving: true,
        urgency: Urgency::RootNews,
        follows: 4,
        reports: vec![LinkReport::DOWN; 2],
    };
    let links = links.sign(&mut provider, &key, NETWORK, &hash).unwrap();
    let control = |message: Message<'_>| {
        let mut out = Vec::new();
        message.encode(&mut out);
        out
    };
    let request = Message::Request(Request::new([(ShortId([1; 8]), 6)]));
    let report = LinkReport {
        delay: Cost::from_millis(40),
        loss: LossCode(2),
    };
    let delta = LinkDelta {
        origin: ShortId([1; 8]),
        base: 5,
        after: 2,
        changes: vec![(0, report), (1, report)],
    };
    let deltas = Message::LinkDeltas(vec![delta; 2]);
    let have = Message::Have(Have::new([(ShortId([1; 8]), 5)]));
    vec![
        ("mesh_control", "deltas", control(deltas)),
        ("mesh_control", "have", control(have)),
        ("mesh_control", "graft", control(Message::Graft)),
        ("mesh_control", "hello", control(Message::Hello(&node))),
        (
            "mesh_control",
            "links",
            control(Message::LinkRecord(&links)),
        ),
        ("mesh_control", "request", control(request)),
        ("mesh_node_record", "two_neighbours", node.clone()),
        ("mesh_link_record", "leaving", links.clone()),
    ]
    .into_iter()
    .chain(configs())
    .collect()
}

fn configs() -> Vec<Input> {
    let message = |message: ConfigMessage<'_>| {
        let mut out = Vec::new();
        message.encode(&mut out);
        out
    };
    let piece = signed_config::Piece::cut(7, &[9; 8_200], 8_192).unwrap();
    let request = ConfigMessage::Request {
        version: 7,
        offset: 8_192,
    };
    let held = HeldVersion {
        version: 7,
        keys: 9,
    };
    let text = document(1).into_bytes();
    vec![
        ("signed_config", "first", envelope(1)),
        ("signed_config", "two", [envelope(1), envelope(2)].concat()),
        ("signed_config_text", "document", text),
        (
            "signed_config_text",
            "seed_games",
            GAMES_OF_THE_SEED.to_vec(),
        ),
        (
            "signed_config_message",
            "version",
            message(ConfigMessage::Version(held)),
        ),
        ("signed_config_message", "request", message(request)),
        (
            "signed_config_message",
            "piece",
            message(ConfigMessage::Piece(piece)),
        ),
    ]
}

/// A game configuration of `PureGamer`.
const GAMES_OF_THE_SEED: &[u8] = br#"{"games":[{"id":"mc","protocol":"HAProxy","host":"192.0.2.9",
"port":25565,"listen_port":25565,"entry_node":{"type":"all"},"exit_node":{"type":"black",
"white_list":[],"black_list":["QmC"]},"speed_test_protocol":"TCP"}],"system":{"listen_host":"::"}}"#;
