//! Runs a prepared graph: writes inputs, then run after run, with copies between backends.

use super::cache::Compiled;
use super::inputs::BatchInputs;
use super::split::{Split, computes};
use super::{
    Backend, BackendId, Counts, DType, Graph, GraphError, HostRows, NodeId, NodeRange, Op, Place,
    Run,
};

/// Watches nodes as they finish: pictures, profiles, dumps of layers.
///
/// With an observer nodes run one at a time, each waited for; the values stay the same.
pub trait Observer {
    /// A node that computes something is about to run: all before it is done.
    fn starts(&mut self, _graph: &Graph, _id: NodeId) {}

    /// A node (not an input) has been computed. `values` reads its rows in use, row after row (an
    /// i32 output as numbers of the same value; a KV region has none), and costs only if called.
    ///
    /// # Errors
    /// What it returns ends the forward pass.
    fn node(
        &mut self,
        graph: &Graph,
        id: NodeId,
        values: &mut dyn FnMut() -> Result<Vec<f32>, GraphError>,
    ) -> Result<(), GraphError>;
}

/// What is reused from pass to pass, so that a steady pass allocates nothing.
#[derive(Default)]
pub(super) struct Scratch {
    bytes: Vec<u8>,
}

/// One forward pass.
pub(super) fn execute(
    compiled: &Compiled,
    backends: &mut [Box<dyn Backend>],
    inputs: &BatchInputs<'_>,
    scratch: &mut Scratch,
    mut observer: Option<&mut dyn Observer>,
) -> Result<(), GraphError> {
    let counts = inputs.counts();
    write_inputs(compiled, backends, inputs, scratch)?;
    for split in &compiled.splits {
        copy_in(compiled, split, backends, counts, scratch)?;
        match observer.as_deref_mut() {
            None => {
                let run = run_of(compiled, split, split.nodes, counts);
                backend(backends, split.backend).execute(&run)?;
            }
            Some(observer) => observed(compiled, split, backends, counts, observer)?,
        }
    }
    for split in &compiled.splits {
        backend(backends, split.backend).synchronize()?;
    }
    Ok(())
}

fn backend(backends: &mut [Box<dyn Backend>], id: BackendId) -> &mut dyn Backend {
    backends[id.0 as usize].as_mut()
}

fn run_of<'a>(compiled: &'a Compiled, split: &Split, nodes: NodeRange, counts: Counts) -> Run<'a> {
    Run {
        graph: &compiled.graph,
        nodes,
        places: &compiled.places[split.backend.0 as usize],
        counts,
    }
}

fn write_inputs(
    compiled: &Compiled,
    backends: &mut [Box<dyn Backend>],
    inputs: &BatchInputs<'_>,
    scratch: &mut Scratch,
) -> Result<(), GraphError> {
    for place in &compiled.inputs {
        scratch.bytes.clear();
        for value in inputs.of(place.input) {
            scratch.bytes.extend_from_slice(&value.to_ne_bytes());
        }
        backend(backends, place.backend).write(place.buffer, 0, &scratch.bytes)?;
    }
    Ok(())
}

/// Brings every output that this run reads and another backend computed: waits for the producer
/// first, since its work may only have been queued.
fn copy_in(
    compiled: &Compiled,
    split: &Split,
    backends: &mut [Box<dyn Backend>],
    counts: Counts,
    scratch: &mut Scratch,
) -> Result<(), GraphError> {
    for crossing in &split.crossings {
        let node = crossing.node.index();
        let shape = compiled.graph.nodes[node].shape;
        let rows = counts.rows(shape.rows);
        let at = |b: BackendId| {
            compiled.places[b.0 as usize][node].expect("crossings are placed on both sides")
        };
        let source = backend(backends, crossing.from);
        source.synchronize()?;
        read_rows(
            source,
            at(crossing.from),
            0..rows,
            shape.cols,
            &mut scratch.bytes,
        )?;
        let to = at(split.backend);
        backend(backends, split.backend).write(to.buffer, to.offset * 4, &scratch.bytes)?;
    }
    Ok(())
}

/// Reads rows of an output into `out`, one row directly after the other.
fn read_rows(
    backend: &mut dyn Backend,
    place: Place,
    rows: std::ops::Range<usize>,
    cols: usize,
    out: &mut Vec<u8>,
) -> Result<(), GraphError> {
    let (start, n) = (rows.start, rows.len());
    out.resize(n * cols * 4, 0);
    if place.stride == cols || n == 1 {
        let first = (place.offset + start * place.stride) * 4;
        backend.read(place.buffer, first, out)?;
        return Ok(());
    }
    for (r, row) in out.chunks_exact_mut((cols * 4).max(1)).enumerate() {
        let first = (place.offset + (start + r) * place.stride) * 4;
        backend.read(place.buffer, first, row)?;
    }
    Ok(())
}

fn observed(
    compiled: &Compiled,
    split: &Split,
    backends: &mut [Box<dyn Backend>],
    counts: Counts,
    observer: &mut dyn Observer,
) -> Result<(), GraphError> {
    for i in split.nodes.start..split.nodes.end {
        let node = &compiled.graph.nodes[i];
        if matches!(node.op, Op::Input(_)) {
            continue;
        }
        let id = NodeId(i as u32);
        if computes(&node.op) {
            observer.starts(&compiled.graph, id);
            let nodes = NodeRange {
                start: i,
                end: i + 1,
            };
            let running = backend(backends, split.backend);
            running.execute(&run_of(compiled, split, nodes, counts))?;
            running.synchronize()?;
        }
        let home = backend(backends, node.backend.expect("assigned before running"));
        let mut values = || node_values(compiled, home, id, counts);
        observer.node(&compiled.graph, id, &mut values)?;
    }
    Ok(())
}

fn node_values(
    compiled: &Compiled,
    home: &mut dyn Backend,
    id: NodeId,
    counts: Counts,
) -> Result<Vec<f32>, GraphError> {
    let node = compiled.graph.node(id);
    let (Some(b), false) = (node.backend, node.dtype == DType::Kv) else {
        return Ok(Vec::new());
    };
    let place = compiled.places[b.0 as usize][id.index()].expect("every node has a place at home");
    let mut bytes = Vec::new();
    let rows = 0..counts.rows(node.shape.rows);
    read_rows(home, place, rows, node.shape.cols, &mut bytes)?;
    let words = bytes.chunks_exact(4).map(|w| [w[0], w[1], w[2], w[3]]);
    Ok(match node.dtype {
        DType::I32 => words.map(|w| i32::from_ne_bytes(w) as f32).collect(),
        _ => words.map(f32::from_ne_bytes).collect(),
    })
}

/// One row of the graph's first output: where it lies if the host can look there, else copied to `room`.
pub(super) fn output_row<'a>(
    compiled: &Compiled,
    backends: &'a mut [Box<dyn Backend>],
    row: usize,
    counts: Counts,
    room: &'a mut Vec<f32>,
) -> Result<&'a mut [f32], GraphError> {
    let out = output(compiled, &(row..row.saturating_add(1)), counts)?;
    let home = backend(backends, out.backend);
    let first = out.place.offset + row * out.place.stride;
    // Asked twice: a borrow that is given back only in one branch is beyond the compiler.
    if home.host_f32(out.place.buffer, first, out.cols).is_none() {
        room.resize(out.cols, 0.0);
        home.read_f32(out.place.buffer, first, room)?;
        return Ok(room);
    }
    let values = home.host_f32(out.place.buffer, first, out.cols);
    values.ok_or_else(|| GraphError::Output("its memory can't be looked at any more".into()))
}

/// Values of a copied part that stay allocated: four rows of the largest vocabularies.
const KEPT: usize = 1 << 20;

/// The rows of the graph's first output in parts, part `i` the next `parts[i]` rows, each handed to `work`: at once where
/// the host can look at them, else copied to `room` one part after the other.
pub(super) fn output_parts(
    compiled: &Compiled,
    backends: &mut [Box<dyn Backend>],
    parts: &[usize],
    counts: Counts,
    room: &mut Vec<f32>,
    work: &PartsWork<'_>,
) -> Result<(), GraphError> {
    let n: usize = parts.iter().sum();
    let Output {
        backend: b,
        place,
        cols,
    } = output(compiled, &(0..n), counts)?;
    let home = backend(backends, b);
    if home.host_rows(place, cols, parts, &|i, rows| work(i, Ok(rows)))? {
        return Ok(());
    }
    let mut first = 0;
    for (i, &rows) in parts.iter().enumerate() {
        room.resize(rows * cols, 0.0);
        let read = (0..rows).zip(room.chunks_exact_mut(cols.max(1)));
        let mut read = read.map(|(r, row)| {
            let at = place.offset + (first + r) * place.stride;
            home.read_f32(place.buffer, at, row)
        });
        match read.find_map(Result::err) {
            Some(e) => work(i, Err(e.into())),
            None => work(i, Ok(HostRows::new(room, cols, cols))),
        }
        first += rows;
    }
    // One long part, as of a prompt that is repeated with log-probabilities, is no reason to keep as much.
    room.truncate(KEPT);
    room.shrink_to(KEPT);
    Ok(())
}

/// Works on part `i` of an output's rows, or hears why they can't be had.
pub type PartsWork<'a> = dyn Fn(usize, Result<HostRows<'_>, GraphError>) + Sync + 'a;

/// Where the graph's first output lies.
struct Output {
    backend: BackendId,
    place: Place,
    cols: usize,
}

/// Finds it, and checks that the last pass computed these rows.
fn output(
    compiled: &Compiled,
    rows: &std::ops::Range<usize>,
    counts: Counts,
) -> Result<Output, GraphError> {
    let id = compiled.graph.outputs[0];
    let node = compiled.graph.node(id);
    let in_use = counts.rows(node.shape.rows);
    if rows.start > rows.end || rows.end > in_use {
        let (a, b) = (rows.start, rows.end);
        return Err(GraphError::Output(format!(
            "rows {a}..{b} asked, the last pass computed {in_use}"
        )));
    }
    let backend = node.backend.expect("assigned before running");
    let places = &compiled.places[backend.0 as usize];
    Ok(Output {
        backend,
        place: places[id.index()].expect("outputs have places"),
        cols: node.shape.cols,
    })
}

/// Rows of the graph's first output as f32.
pub(super) fn read_output(
    compiled: &Compiled,
    backends: &mut [Box<dyn Backend>],
    rows: std::ops::Range<usize>,
    counts: Counts,
    out: &mut [f32],
) -> Result<(), GraphError> {
    let Output {
        backend: b,
        place,
        cols,
    } = output(compiled, &rows, counts)?;
    let want = rows.len() * cols;
    if out.len() != want {
        let n = rows.len();
        return Err(GraphError::Output(format!(
            "{n} rows of {cols} are {want} values, the buffer has {}",
            out.len()
        )));
    }
    let home = backend(backends, b);
    let first = |row: usize| place.offset + row * place.stride;
    if place.stride == cols || rows.len() == 1 {
        home.read_f32(place.buffer, first(rows.start), out)?;
        return Ok(());
    }
    for (row, out) in rows.zip(out.chunks_exact_mut(cols.max(1))) {
        home.read_f32(place.buffer, first(row), out)?;
    }
    Ok(())
}
