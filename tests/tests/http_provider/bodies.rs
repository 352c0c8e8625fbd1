//! Bodies that the host moves for a component: whole both ways, whatever their size, and never held.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use leasehold_parts::{Chunks, Pattern, digest_of_all, write_chunks};
use leasehold_tests::http::text;
use leasehold_tests::memory::{forget_peak, peak};

use super::{House, TOKEN};

const GIB: u64 = 1 << 30;
/// What a transfer may add to the memory of the server, in KiB: buffers on the way, and no body.
const FLAT: u64 = 16 << 10;

/// Opens a request for the files of a lease's workspace; its body is in chunks.
fn request(house: &House, method: &str, lease: &str) -> BufReader<UnixStream> {
    let mut stream = UnixStream::connect(house.server.socket()).expect("the server listens");
    let body = match method {
        "PUT" => "content-type: application/x-tar\r\ntransfer-encoding: chunked\r\n",
        _ => "",
    };
    write!(
        stream,
        "{method} /api/environment-leases/{lease}/files?path=. HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{body}\r\n"
    )
    .expect("it is taken");
    BufReader::new(stream)
}

/// The status and the headers of its answer, in lower case.
fn head(stream: &mut BufReader<UnixStream>) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        let read = stream.read_line(&mut head).expect("an answer");
        assert!(read > 0, "it ended in its head: {head}");
    }
    head.to_ascii_lowercase()
}

/// Sends so many bytes in odd chunks, and answers what came at the room server.
fn sent(house: &House, lease: &str, length: u64) -> Option<(u64, Vec<u8>)> {
    let mut stream = request(house, "PUT", lease);
    write_chunks(Pattern::of(length), stream.get_mut()).expect("all of it is taken");
    let mut answer = head(&mut stream);
    if !answer.starts_with("http/1.1 204") {
        stream.read_to_string(&mut answer).expect("a refusal");
        panic!("{answer}");
    }
    house.rooms.came()
}

/// Takes what the room server sends, and answers what it was.
fn taken(house: &House, lease: &str) -> (u64, Vec<u8>) {
    let mut stream = request(house, "GET", lease);
    let answer = head(&mut stream);
    assert!(answer.starts_with("http/1.1 200"), "{answer}");
    assert!(answer.contains("transfer-encoding: chunked"), "{answer}");
    digest_of_all(Chunks::new(stream)).expect("all of it")
}

#[test]
fn bodies_of_every_size_pass_the_server_both_ways_unchanged_and_a_gibibyte_fills_no_memory() {
    let Some(house) = House::of("lodge", TOKEN) else {
        return;
    };
    let lease = text(&house.acquire()["id"]);
    for length in [1, 2, 65_535, 65_537, (1 << 20) + 1, GIB] {
        house.rooms.move_only(length);
        let whole = digest_of_all(Pattern::of(length)).expect("it is made here");
        forget_peak(house.server.pid());
        let before = peak(house.server.pid());
        assert_eq!(sent(&house, &lease, length).as_ref(), Some(&whole), "up");
        let up = peak(house.server.pid());
        assert_eq!(taken(&house, &lease), whole, "down");
        let down = peak(house.server.pid());
        println!("{length} bytes: {before} KiB, {up} after going up, {down} after coming down");
        assert!(up < before + FLAT, "{up} KiB after {before}: {length} up");
        assert!(
            down < before + FLAT,
            "{down} KiB after {before}: {length} down"
        );
    }
    assert_eq!(house.server.release(&lease)["status"], "released");
}

#[test]
fn files_are_copied_into_a_room_and_out_of_it() {
    let Some(house) = House::of("lodge", TOKEN) else {
        return;
    };
    let lease = text(&house.acquire()["id"]);
    let here = tempfile::tempdir().expect("a folder");
    let tree = here.path().join("tree");
    std::fs::create_dir_all(tree.join("below")).expect("a folder");
    let mut bytes = Vec::new();
    Pattern::of(300_001)
        .read_to_end(&mut bytes)
        .expect("it is made here");
    std::fs::write(tree.join("below/a b"), &bytes).expect("a file");
    let (from, back) = (tree.display().to_string(), here.path().join("back"));
    std::fs::create_dir(&back).expect("a folder");
    let copied = house.server.run(&["cp", &from, &format!("{lease}:.")]);
    assert_eq!(copied.code, 0, "{}", copied.stderr);
    let ran = house.server.run(&[
        "exec",
        "--no-stdin",
        &lease,
        "--",
        "wc",
        "-c",
        "tree/below/a b",
    ]);
    assert!(ran.stdout.starts_with("300001 "), "{ran:?}");
    let to = back.display().to_string();
    let copied = house.server.run(&["cp", &format!("{lease}:tree"), &to]);
    assert_eq!(copied.code, 0, "{}", copied.stderr);
    let came = std::fs::read(back.join("tree/below/a b")).expect("the file");
    assert!(came == bytes, "{} bytes came back", came.len());
    house.keeps_no_secret();
}
