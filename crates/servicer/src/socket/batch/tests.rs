use super::*;
use std::num::NonZeroU16;

/// Pushes a datagram of `len` bytes to the peer of a port.
fn push(batch: &mut Batch, port: u16, len: usize, segments_max: usize) {
    push_transmit(batch, port, (len, None), segments_max);
}

fn push_transmit(
    batch: &mut Batch,
    port: u16,
    (len, segment): (usize, Option<u16>),
    segments_max: usize,
) {
    let start = batch.len();
    batch.buffer().resize(start + len, 0);
    let outbound = Outbound {
        destination: ([192, 0, 2, 1], port).into(),
        source: None,
        segment_len: segment.and_then(NonZeroU16::new),
        ecn: None,
    };
    batch.push(SocketIndex(0), outbound, start, segments_max);
}

/// Port, bytes and segment length of each run.
fn runs(batch: &mut Batch) -> Vec<(u16, usize, Option<u16>)> {
    let (mut found, mut end) = (Vec::new(), 0);
    let len = batch.len();
    batch.flush(|_, runs, bytes, _| {
        assert_eq!(bytes.len(), len);
        for run in runs {
            assert_eq!(run.range.start, end, "no gaps");
            end = run.range.end;
            let segment = run.outbound.segment_len.map(NonZeroU16::get);
            found.push((run.outbound.destination.port(), run.range.len(), segment));
        }
        Sent::default()
    });
    assert_eq!(end, len);
    assert_eq!(batch.len(), 0);
    found
}

#[test]
fn b5_a_run_has_one_destination_and_ends_with_a_shorter_datagram() {
    let mut batch = Batch::default();
    for (port, len) in [
        (1, 9),
        (1, 9),
        (1, 4),
        (1, 4),
        (2, 4),
        (2, 5),
        (1, 5),
        (1, 0),
        (1, 5),
    ] {
        push(&mut batch, port, len, 64);
    }
    let expected = [
        (1, 22, Some(9)),
        (1, 4, None),
        (2, 4, None),
        (2, 5, None),
        (1, 5, None),
        (1, 0, None),
        (1, 5, None),
    ];
    assert_eq!(runs(&mut batch), expected);
    for _ in 0..3 {
        push(&mut batch, 1, 9, 1);
    }
    assert_eq!(
        runs(&mut batch),
        [(1, 9, None); 3],
        "nothing is cut up here"
    );
}

#[test]
fn b5_no_run_exceeds_the_limit_of_the_system() {
    let mut batch = Batch::default();
    for _ in 0..65 {
        push(&mut batch, 1, 100, 64);
    }
    assert_eq!(runs(&mut batch), [(1, 6_400, Some(100)), (1, 100, None)]);
    for _ in 0..55 {
        push(&mut batch, 1, 1_200, 64);
    }
    assert_eq!(
        runs(&mut batch),
        [(1, 64_800, Some(1_200)), (1, 1_200, None)]
    );
    // A machine's burst is split if it exceeds the system's limit.
    push_transmit(&mut batch, 1, (700, Some(200)), 2);
    assert_eq!(runs(&mut batch), [(1, 400, Some(200)), (1, 300, Some(200))]);
    push_transmit(&mut batch, 1, (500, Some(200)), 1);
    assert_eq!(
        runs(&mut batch),
        [(1, 200, None), (1, 200, None), (1, 100, None)]
    );
}

#[test]
fn b5_a_batch_is_bounded_in_runs_and_in_bytes() {
    let mut batch = Batch::default();
    for port in 1..64 {
        push(&mut batch, port, 1, 64);
        assert!(!batch.is_full());
    }
    push(&mut batch, 64, 1, 64);
    assert!(batch.is_full());
    runs(&mut batch);
    push(&mut batch, 1, (128 << 10) - 1, 64);
    assert!(!batch.is_full());
    push(&mut batch, 1, 1, 64);
    assert!(batch.is_full());
}

/// A scripted system that rejects sends.
#[derive(Default)]
struct Script {
    /// The result of sends to a port, for each attempt.
    fates: Vec<(u16, ErrorKind)>,
    /// Whether single sends fail too.
    alone_too: bool,
    /// Ports sent to, in order.
    taken: Vec<u16>,
    /// Whether batch sends are supported.
    has_many: bool,
    calls: u64,
    noted: Vec<Sent>,
}

fn port(run: &Run) -> u16 {
    run.outbound.destination.port()
}

impl Script {
    fn fate(&self, run: &Run) -> Option<io::Error> {
        let found = self.fates.iter().find(|(of, _)| *of == port(run));
        found.map(|(_, kind)| {
            if *kind == ErrorKind::Other {
                io::Error::from_raw_os_error(NO_BUFFERS)
            } else {
                (*kind).into()
            }
        })
    }
}

impl DatagramSink for Script {
    fn send_many(&mut self, runs: &[Run]) -> io::Result<usize> {
        self.calls += 1;
        let mut sent = 0;
        for run in runs {
            if let Some(error) = self.fate(run) {
                // As on Linux, an error after the first message is reported by the next call.
                return if sent == 0 { Err(error) } else { Ok(sent) };
            }
            self.taken.push(port(run));
            sent += 1;
        }
        Ok(sent)
    }

    fn can_send_many(&self) -> bool {
        self.has_many
    }

    fn on_sent_alone(&mut self, fate: &Sent) {
        self.noted.push(*fate);
    }

    fn send_alone(&mut self, run: &Run) -> Sent {
        self.calls += 1;
        let mut sent = Sent {
            calls: 1,
            ..Sent::default()
        };
        if let Some(error) = self.fate(run).filter(|_| self.alone_too) {
            sent.count(&Err(error));
        } else {
            self.taken.push(port(run));
            sent.datagrams = run.count();
        }
        sent
    }
}

/// Sends to ports 1 to 6, with three datagrams to port 3.
fn send(script: &mut Script) -> Sent {
    let mut batch = Batch::default();
    for port in 1..=6 {
        let times = if port == 3 { 3 } else { 1 };
        for _ in 0..times {
            push(&mut batch, port, 7, 64);
        }
    }
    let sent = batch.flush(|_, runs, _, _| send_in_order(runs, script));
    assert_eq!(sent.calls, script.calls, "every call is counted");
    sent
}

#[test]
fn b5_an_error_in_the_middle_of_a_batch_costs_only_its_own_run() {
    for (kind, expected) in [
        (ErrorKind::WouldBlock, [3, 0, 0]),
        // Represents ENOBUFS, which has no `ErrorKind`.
        (ErrorKind::Other, [3, 0, 0]),
        (ErrorKind::ConnectionRefused, [0, 1, 0]),
        (ErrorKind::PermissionDenied, [0, 0, 1]),
    ] {
        let mut script = Script {
            fates: vec![(3, kind)],
            alone_too: true,
            has_many: true,
            ..Script::default()
        };
        let sent = send(&mut script);
        assert_eq!(script.taken, [1, 2, 4, 5, 6], "{kind}");
        assert_eq!(sent.datagrams, 5, "{kind}");
        assert_eq!(
            [sent.full, sent.unreachable, sent.refused],
            expected,
            "{kind}"
        );
    }
}

#[test]
fn b5_a_refused_batch_is_sent_one_by_one_in_order() {
    let mut script = Script {
        fates: vec![(1, ErrorKind::InvalidInput), (3, ErrorKind::InvalidInput)],
        has_many: true,
        ..Script::default()
    };
    let sent = send(&mut script);
    assert_eq!(script.taken, [1, 2, 3, 4, 5, 6], "in order");
    assert_eq!((sent.datagrams, sent.refused), (8, 0));
    let noted = script.noted.iter().map(|fate| fate.datagrams);
    assert_eq!(noted.collect::<Vec<_>>(), [1, 3]);
}

#[test]
fn b5_without_a_batch_call_each_datagram_is_sent_alone() {
    let mut script = Script::default();
    let sent = send(&mut script);
    assert_eq!(script.taken, [1, 2, 3, 4, 5, 6]);
    assert_eq!((sent.datagrams, sent.calls), (8, 6));
}

#[test]
fn b5_a_full_buffer_ends_each_batch_in_bounded_work() {
    let fates = (1..=6).map(|port| (port, ErrorKind::WouldBlock)).collect();
    let mut script = Script {
        fates,
        alone_too: true,
        has_many: true,
        ..Script::default()
    };
    let sent = send(&mut script);
    assert_eq!((sent.full, sent.datagrams), (8, 0));
    assert_eq!(sent.calls, 6, "one for each run at most");
}

#[test]
fn a_repeated_error_belongs_to_the_datagram() {
    let (refused, no_route) = (
        ErrorKind::ConnectionRefused.into(),
        ErrorKind::NetworkUnreachable.into(),
    );
    for (first, second, [datagrams, unreachable, denied]) in [
        (&refused, Ok(()), [1, 1, 0]),
        (&refused, Err(ErrorKind::PermissionDenied), [0, 1, 1]),
        (&no_route, Err(ErrorKind::ConnectionRefused), [0, 2, 0]),
        (&no_route, Err(ErrorKind::NetworkUnreachable), [0, 1, 0]),
    ] {
        let mut sent = Sent::default();
        sent.count_retry(first, &second.map_err(io::Error::from));
        let expected = Sent {
            datagrams,
            unreachable,
            refused: denied,
            ..Sent::default()
        };
        assert_eq!(sent, expected, "{first} {second:?}");
    }
}

/// An error attributed to an earlier datagram is retried at once, so a permanent one would
/// loop.
#[cfg(has_linux_calls)]
#[test]
fn persistent_errors_are_not_treated_as_icmp() {
    use nix::libc;

    let of = |error| is_of_icmp(&io::Error::from_raw_os_error(error));
    for error in [libc::ENOPROTOOPT, libc::EMSGSIZE, libc::EACCES] {
        assert!(of(error), "{error}");
    }
    for error in [libc::ENOMEM, libc::EPERM, libc::EAGAIN, libc::ENOBUFS] {
        assert!(!of(error), "{error}");
    }
}

#[test]
fn each_send_outcome_has_its_counter() {
    let mut sent = Sent::default();
    sent.count(&Ok(()));
    sent.count(&Err(ErrorKind::WouldBlock.into()));
    sent.count(&Err(ErrorKind::ConnectionRefused.into()));
    sent.count(&Err(ErrorKind::ConnectionReset.into()));
    sent.count(&Err(ErrorKind::NetworkUnreachable.into()));
    sent.count(&Err(ErrorKind::PermissionDenied.into()));
    let counted = Sent {
        calls: 0,
        datagrams: 1,
        full: 1,
        too_large: 0,
        unreachable: 3,
        refused: 1,
    };
    assert_eq!(sent, counted);
}
