//! Version 1.

use super::*;

/// Reads a line after adding its end.
fn line(text: &str) -> Result<Found<'static>, BadHeader> {
    let bytes = format!("{text}\r\n").into_bytes();
    let found = read(bytes.leak(), LEN_USUAL);
    if let Ok(Found::Header(header)) = &found {
        assert_eq!(header.version, Version::One);
        assert_eq!(header.len, text.len() + 2);
        assert_eq!(header.tlvs.clone().count(), 0);
    }
    found
}

fn subject(text: &str) -> Subject {
    match line(text) {
        Ok(Found::Header(header)) => header.subject,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn mesh_c1_lines_of_the_grammar_are_read() {
    for (text, source, destination) in [
        (
            "TCP4 192.168.0.1 192.168.0.11 56324 443",
            "192.168.0.1:56324",
            "192.168.0.11:443",
        ),
        (
            "TCP4 255.255.255.255 0.0.0.0 65535 0",
            "255.255.255.255:65535",
            "0.0.0.0:0",
        ),
        ("TCP6 2001:db8::9 ::1 1 2", "[2001:db8::9]:1", "[::1]:2"),
        (
            "TCP6 2001:0DB8:0:0000::9 fe80:1:2:3:4:5:6:7 1 2",
            "[2001:db8::9]:1",
            "[fe80:1:2:3:4:5:6:7]:2",
        ),
        // RFC 4291, section 2.2, point 3; and both forms of a mapped address.
        ("TCP6 ::ffff:203.0.113.9 :: 1 2", "203.0.113.9:1", "[::]:2"),
        (
            "TCP6 ::ffff:cb00:7109 2001:db8::1.2.3.4 1 2",
            "203.0.113.9:1",
            "[2001:db8::102:304]:2",
        ),
    ] {
        let expected = ends(Transport::Stream, source, destination);
        assert_eq!(subject(&format!("PROXY {text}")), Subject::Flow(expected));
    }
}

#[test]
fn mesh_c1_what_follows_unknown_is_ignored() {
    for text in [
        "PROXY UNKNOWN",
        "PROXY UNKNOWN ",
        "PROXY UNKNOWN ffff::1 ffff::2 65535 65535",
        "PROXY UNKNOWN TCP4 \r \n \0 \u{e9}",
    ] {
        assert_eq!(subject(text), Subject::Unnamed, "{text}");
    }
}

#[test]
fn mesh_c1_lines_that_break_the_grammar_are_refused() {
    for text in [
        "PROXY",
        "PROXY ",
        "PROXYTCP4 1.2.3.4 1.2.3.4 1 2",
        "PROXY  TCP4 1.2.3.4 1.2.3.4 1 2",
        "PROXY tcp4 1.2.3.4 1.2.3.4 1 2",
        "PROXY TCP5 1.2.3.4 1.2.3.4 1 2",
        "PROXY TCP4",
        "PROXY TCP4 ",
        "PROXY TCP4  1.2.3.4 1.2.3.4 1 2",
        "PROXY TCP4 1.2.3.4  1.2.3.4 1 2",
        "PROXY TCP4 1.2.3.4 1.2.3.4  1 2",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1  2",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1 2 ",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1 ",
        "PROXY TCP4\t1.2.3.4 1.2.3.4 1 2",
        "PROXY TCP4 1.2.3.4\t1.2.3.4 1 2",
        "PROXY TCP4 01.2.3.4 1.2.3.4 1 2",
        "PROXY TCP4 1.2.3.004 1.2.3.4 1 2",
        "PROXY TCP4 1.2.3.256 1.2.3.4 1 2",
        "PROXY TCP4 1.2.3 1.2.3.4 1 2",
        "PROXY TCP4 +1.2.3.4 1.2.3.4 1 2",
        "PROXY TCP4 1.2.3.4 1.2.3.4 01 2",
        "PROXY TCP4 1.2.3.4 1.2.3.4 00 2",
        "PROXY TCP4 1.2.3.4 1.2.3.4 +1 2",
        "PROXY TCP4 1.2.3.4 1.2.3.4 -1 2",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1 65536",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1 0x2",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1 \u{662}",
        "PROXY TCP4 ::1 ::1 1 2",
        "PROXY TCP6 1.2.3.4 ::1 1 2",
        "PROXY TCP6 ::1 1.2.3.4 1 2",
        "PROXY TCP6 fe80::1%eth0 ::1 1 2",
        "PROXY TCP6 [::1] ::1 1 2",
        "PROXY TCP6 1:2:3:4:5:6:7 ::1 1 2",
        "PROXY TCP6 1:2:3:4:5:6:7:8:9 ::1 1 2",
        "PROXY TCP6 1::2::3 ::1 1 2",
        "PROXY TCP6 00001::1 ::1 1 2",
        "PROXY TCP6 ::g ::1 1 2",
        "PROXY UNKNOWNS",
    ] {
        assert_eq!(line(text), Err(BadHeader::Line), "{text:?}");
    }
    // A single CR or LF does not end a line.
    for text in ["PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n", "PROXY UNKNOWN\r"] {
        let found = read(text.as_bytes(), LEN_USUAL);
        assert!(matches!(found, Ok(Found::Partial { .. })), "{text:?}");
    }
}

/// A prefix of no valid line is refused before the end arrives.
#[test]
fn mesh_c1_a_line_that_can_be_none_is_refused_at_once() {
    for text in [
        "PROXYX",
        "PROXY X",
        "PROXY TCP9",
        "PROXY TCP4x",
        "PROXY UNKX",
    ] {
        assert_eq!(read(text.as_bytes(), LEN_USUAL), Err(BadHeader::Line));
    }
}

#[test]
fn mesh_c1_a_line_has_at_most_107_bytes() {
    let longest = "PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff \
                   ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535";
    assert_eq!(longest.len(), LINE_MAX - 2);
    assert_eq!(subject(longest), Subject::Unnamed);
    assert_eq!(line(&format!("{longest}5")), Err(BadHeader::LineTooLong));
    // Without an end, it is refused from the byte on after which the end does not fit.
    let mut endless = longest.as_bytes().to_vec();
    let partial = |needed| Ok(Found::Partial { needed });
    assert_eq!(read(&endless, LEN_USUAL), partial(107));
    endless.push(b'\r');
    assert_eq!(read(&endless, LEN_USUAL), partial(107));
    endless[105] = b'5';
    assert_eq!(read(&endless, LEN_USUAL), Err(BadHeader::LineTooLong));
    endless.push(b'\r');
    assert_eq!(read(&endless, LEN_USUAL), Err(BadHeader::LineTooLong));
    // A lower limit applies to lines too.
    assert_eq!(read(b"PROXY UNKNOWN\r\n", 14), Err(BadHeader::LineTooLong));
    assert_eq!(whole(b"PROXY UNKNOWN\r\n", 15).len, 15);
}

#[test]
fn pg10_a_line_is_written_as_the_specification_has_it() {
    for (source, destination, text) in [
        (
            "192.168.0.1:56324",
            "192.168.0.11:443",
            "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n",
        ),
        (
            "[2001:db8::9]:65535",
            "[::1]:0",
            "PROXY TCP6 2001:db8::9 ::1 65535 0\r\n",
        ),
        (
            "[2001:db8::9]:1",
            "203.0.113.9:2",
            "PROXY TCP6 2001:db8::9 ::ffff:cb00:7109 1 2\r\n",
        ),
        (
            "[::ffff:203.0.113.9]:1",
            "127.0.0.1:2",
            "PROXY TCP4 203.0.113.9 127.0.0.1 1 2\r\n",
        ),
    ] {
        let mut out = b"before".to_vec();
        write_line(&ends(Transport::Stream, source, destination), &mut out).unwrap();
        assert_eq!(out, [b"before", text.as_bytes()].concat());
    }
    let longest = "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe]:65535";
    let mut out = Vec::new();
    write_line(&ends(Transport::Stream, longest, longest), &mut out).unwrap();
    assert_eq!(out.len(), 104);
    let datagrams = ends(Transport::Datagram, longest, longest);
    assert_eq!(write_line(&datagrams, &mut out), Err(WriteError::Datagrams));
    assert_eq!(out.len(), 104, "nothing is appended");
}
