//! A game over TCP: a web server with a map, and a client which downloads it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Starts a web server which serves one map at the rate of a live stream.
pub(crate) fn serve(address: SocketAddr) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // A client that leaves early does not stop the server.
            thread::spawn(move || answer(&stream).ok());
        }
    });
    Ok(address)
}

fn answer(mut stream: &TcpStream) -> io::Result<()> {
    let mut asked = BufReader::new(stream);
    let mut line = String::new();
    while asked.read_line(&mut line)? > 0 && line != "\r\n" {
        line.clear();
    }
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Length: {MAP_BYTES}\r\nConnection: close\r\n\r\n"
    )?;
    for begin in (0..MAP_BYTES).step_by(CHUNK_BYTES) {
        let chunk: Vec<u8> = (begin..begin + CHUNK_BYTES).map(map_byte).collect();
        stream.write_all(&chunk)?;
        thread::sleep(CHUNK_PAUSE);
    }
    Ok(())
}

/// A download of the map, concurrent with the game.
pub(crate) struct Download {
    had: Arc<AtomicUsize>,
    thread: JoinHandle<io::Result<bool>>,
}

impl Download {
    /// Requests the map.
    pub(crate) fn start(entry: SocketAddr) -> io::Result<Self> {
        let mut stream = TcpStream::connect(entry)?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        stream.write_all(b"GET /map HTTP/1.1\r\nHost: mesh\r\nConnection: close\r\n\r\n")?;
        let had = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&had);
        let thread = thread::spawn(move || fetch(&mut stream, &count));
        Ok(Self { had, thread })
    }

    /// Returns the progress in percent.
    pub(crate) fn percent(&self) -> usize {
        self.had.load(Ordering::Relaxed) * 100 / MAP_BYTES
    }

    /// Waits for the end. Returns whether the map arrived intact.
    pub(crate) fn end(self) -> io::Result<bool> {
        let ended = self.thread.join();
        ended.unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    }
}

fn fetch(stream: &mut TcpStream, count: &AtomicUsize) -> io::Result<bool> {
    let mut bytes = vec![0; CHUNK_BYTES];
    let mut head = Vec::new();
    let mut had = 0;
    let mut is_whole = true;
    loop {
        let len = stream.read(&mut bytes)?;
        let mut read = bytes.get(..len).unwrap_or_default();
        if len == 0 {
            return Ok(is_whole && had == MAP_BYTES);
        }
        while !head.ends_with(b"\r\n\r\n") {
            let Some((first, rest)) = read.split_first() else {
                break;
            };
            head.push(*first);
            read = rest;
        }
        is_whole &= read
            .iter()
            .zip(had..)
            .all(|(byte, at)| *byte == map_byte(at));
        had += read.len();
        count.store(had, Ordering::Relaxed);
    }
}

/// Returns a byte of the map. No two sections are equal.
const fn map_byte(at: usize) -> u8 {
    let [low, ..] = (at ^ (at >> 8) ^ (at >> 16)).to_le_bytes();
    low
}

/// Size of the map: 10 s at a little over half of a flow's default rate limit.
const MAP_BYTES: usize = 200 * CHUNK_BYTES;
const CHUNK_BYTES: usize = 32 << 10;
const CHUNK_PAUSE: Duration = Duration::from_millis(50);
/// Read timeout of a download.
const SILENCE_MAX: Duration = Duration::from_secs(15);
