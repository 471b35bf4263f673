//! Another client reads the log, by the protocol alone.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use crate::harness::{LIMIT, NatsBackend, Server, append_op, limits, mails_in};

/// A client of NATS in thirty lines.
struct RawClient {
    stream: BufReader<TcpStream>,
}

impl RawClient {
    fn connect(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut client = Self {
            stream: BufReader::new(stream),
        };
        assert!(client.line().starts_with("INFO"));
        client.send("CONNECT {\"verbose\":false,\"headers\":true}\r\nSUB answers 1\r\n");
        client
    }

    fn send(&mut self, text: &str) {
        self.stream.get_mut().write_all(text.as_bytes()).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line
    }

    fn request(&mut self, subject: &str, body: &str) -> String {
        self.send(&format!(
            "PUB {subject} answers {}\r\n{body}\r\n",
            body.len()
        ));
        loop {
            let line = self.line();
            if line.starts_with("PING") {
                self.send("PONG\r\n");
            } else if line.starts_with("MSG answers ") {
                let len = line.trim_end().rsplit(' ').next().unwrap();
                let mut body = vec![0; len.parse().unwrap()];
                self.stream.read_exact(&mut body).unwrap();
                return String::from_utf8(body).unwrap();
            }
        }
    }
}

/// Returns a text of a JSON object.
fn field<'a>(json: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = json.split_once(&format!("\"{name}\":\""))?;
    rest.split('"').next()
}

fn base64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u32> = text
        .bytes()
        .filter(|byte| *byte != b'=')
        .map(|byte| digit(byte).into())
        .collect();
    let group = |chunk: &[u32]| {
        let bits = chunk.iter().fold(0, |bits, digit| bits << 6 | digit);
        let bits = bits << (6 * (4 - chunk.len()));
        bits.to_be_bytes()[1..chunk.len()].to_vec()
    };
    digits.chunks(4).flat_map(group).collect()
}

#[test]
#[ignore = "needs nats-server"]
fn hub_9_another_client_reads_what_the_hub_has_written() {
    let server = Server::start("");
    let config = server.config();
    let mut backend = NatsBackend::open(&config, limits());
    let epoch = backend.join(1);
    assert!(
        backend
            .run(append_op(epoch, 1, 9, b"read by others"))
            .is_ok()
    );
    let mut client = RawClient::connect(server.port);
    let mut bodies = Vec::new();
    for seq in 1..100 {
        let request = format!("{{\"seq\":{seq}}}");
        let answer = client.request("$JS.API.STREAM.MSG.GET.tickwire-hub", &request);
        let (Some(subject), Some(headers)) = (field(&answer, "subject"), field(&answer, "hdrs"))
        else {
            continue;
        };
        let Some(data) = field(&answer, "data").map(base64) else {
            continue;
        };
        let headers = String::from_utf8(base64(headers)).unwrap();
        let place = headers
            .lines()
            .find_map(|line| line.strip_prefix("Tickwire-Place: "))
            .unwrap();
        bodies.extend(mails_in(subject, place, &data));
    }
    assert_eq!(bodies, [(9, b"read by others".to_vec())]);
}
