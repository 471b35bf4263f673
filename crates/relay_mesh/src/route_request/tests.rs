use super::*;
use proptest::prelude::*;

const NAME: LabelName = LabelName {
    slot: 0x0102_0304,
    generation: 5,
};

#[test]
fn the_bytes_are_frozen() {
    let mut out = Vec::new();
    let request = RouteRequest::Bind {
        next: NodeId([7; 32]),
        binds: vec![Bind {
            label: NAME,
            next: NAME.into(),
            grant: [9; 16],
        }],
    };
    request.encode(RequestId(1), &mut out);
    let mut expected = vec![0x20, 0, 0, 0, 0, 0, 0, 0, 1, 2];
    expected.extend([7; 32]);
    expected.extend([1, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 0]);
    expected.extend([9; 16]);
    assert_eq!(out, expected);
    assert_eq!(RouteRequest::decode(&out), Ok((RequestId(1), request)));
}

#[test]
fn the_bytes_of_what_the_first_relay_is_asked_are_frozen() {
    let mut out = Vec::new();
    let to = vec![GrantedNext {
        next: NAME.into(),
        grant: [9; 16],
    }];
    let next = NodeId([7; 32]);
    let request = RouteRequest::PassOn { next, to };
    request.encode(RequestId(1), &mut out);
    let mut expected = vec![0x20, 0, 0, 0, 0, 0, 0, 0, 1, 3];
    expected.extend([7; 32]);
    expected.extend([1, 1, 2, 3, 4, 5, 0]);
    expected.extend([9; 16]);
    assert_eq!(out, expected);
    assert_eq!(request.count(), 2, "reserved and bound");
    assert_eq!(RouteRequest::decode(&out), Ok((RequestId(1), request)));
    out.pop();
    assert_eq!(RouteRequest::decode(&out), Err(DecodeError::Truncated));
}

#[test]
fn a_form_is_read_as_written_and_no_other_is_known() {
    let reply = RouteReply::Done(vec![Granted {
        label: NAME,
        form: HopForm::TagOnly(HopKey([8; 16])),
        grant: [9; 16],
    }]);
    let mut out = Vec::new();
    reply.encode(RequestId(1), &mut out);
    let mut expected = vec![0x21, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1, 2, 3, 4, 5, 1];
    expected.extend([8; 16]);
    expected.extend([9; 16]);
    assert_eq!(out, expected);
    assert_eq!(RouteReply::decode(&out), Ok((RequestId(1), reply)));
    out[16] = 2;
    assert_eq!(RouteReply::decode(&out), Err(DecodeError::BadValue));
}

#[test]
fn mesh_a1_counts_are_bounded() {
    let request = RouteRequest::ReserveTerminal {
        previous: NodeId([7; 32]),
        flows: vec![FlowId(3); 64],
        path: 5,
    };
    let mut out = Vec::new();
    request.encode(RequestId(1), &mut out);
    assert_eq!(RouteRequest::decode(&out), Ok((RequestId(1), request)));
    out[42] = 65;
    out.extend([0; 8]);
    assert_eq!(
        RouteRequest::decode(&out),
        Err(DecodeError::OverLimit { found: 65, max: 64 })
    );
    out[42] = 0;
    assert_eq!(RouteRequest::decode(&out), Err(DecodeError::BadValue));
}

#[test]
fn every_refusal_is_read_as_written() {
    for why in Refused::ALL {
        let mut out = Vec::new();
        let reply = RouteReply::Refused(why);
        reply.encode(RequestId(9), &mut out);
        assert_eq!(RouteReply::decode(&out), Ok((RequestId(9), reply)));
    }
}

proptest! {
    #[test]
    fn whatever_is_read_is_written_the_same(kind in 0_u8..5, count in 0_u8..3, body: Vec<u8>) {
        let mut request = vec![0x20, 1, 2, 3, 4, 5, 6, 7, 8, kind];
        request.extend([4; 32]);
        request.push(count);
        let mut reply = vec![0x21, 1, 2, 3, 4, 5, 6, 7, 8, kind, count];
        let each = [0, 8, 27, 22, 0][usize::from(kind)];
        let tail = usize::from(count).saturating_mul(each);
        request.extend(body.iter().copied().cycle().take(if body.is_empty() { 0 } else { tail }));
        reply.extend(body.iter().copied().cycle().take(if body.is_empty() { 0 } else { usize::from(count).saturating_mul(22) }));
        let mut out = Vec::new();
        if let Ok((id, decoded)) = RouteRequest::decode(&request) {
            decoded.encode(id, &mut out);
            prop_assert_eq!(&out, &request);
        }
        out.clear();
        if let Ok((id, decoded)) = RouteReply::decode(&reply) {
            decoded.encode(id, &mut out);
            prop_assert_eq!(&out, &reply);
        }
    }
}

fn release_label(slot: u32) -> LabelName {
    LabelName {
        slot,
        generation: 5,
    }
}

#[test]
fn the_bytes_of_a_release_are_frozen() {
    let release = RouteRelease::new([release_label(0x0102_0304), release_label(7)]).unwrap();
    let mut out = Vec::new();
    release.encode(&mut out);
    assert_eq!(out, [0x22, 2, 1, 2, 3, 4, 5, 0, 0, 0, 7, 5]);
    assert_eq!(RouteRelease::decode(&out), Ok(release));
}

#[test]
fn mesh_a1_counts_of_releases_are_bounded() {
    assert_eq!(RouteRelease::new([]), None);
    let many = RouteRelease::new((0..99).map(release_label)).unwrap();
    assert_eq!((many.count(), many.labels().len()), (64, 64));
    let mut out = Vec::new();
    many.encode(&mut out);
    assert_eq!(RouteRelease::decode(&out), Ok(many));
    out[1] = 65;
    out.extend([0; 5]);
    assert_eq!(
        RouteRelease::decode(&out),
        Err(DecodeError::OverLimit { found: 65, max: 64 })
    );
    out[1] = 0;
    assert_eq!(RouteRelease::decode(&out), Err(DecodeError::BadValue));
    assert_eq!(
        RouteRelease::decode(&[0x22, 1, 0]),
        Err(DecodeError::Truncated)
    );
    assert_eq!(
        RouteRelease::decode(&[0x22, 1, 0, 0, 0, 0, 0, 0]),
        Err(DecodeError::Trailing)
    );
    assert_eq!(
        RouteRelease::decode(&[0x21]),
        Err(DecodeError::UnknownType(0x21))
    );
}

proptest! {
    #[test]
    fn a_release_is_written_as_it_was_read(count in 0_u8..4, body: Vec<u8>, cut in 0_usize..22) {
        let mut bytes = vec![0x22, count];
        bytes.extend(body.iter().copied().chain(core::iter::repeat(9)).take(cut));
        if let Ok(release) = RouteRelease::decode(&bytes) {
            let mut out = Vec::new();
            release.encode(&mut out);
            prop_assert_eq!(out, bytes);
        }
    }
}
