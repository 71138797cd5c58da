//! What pages hold: a tree whose path from the root spells the tokens of a prefix, a page a node.
//!
//! A whole page is found by the hash of its parent's hash and its own tokens; the tokens and the parent are
//! compared, never the hash alone. A page that is only begun is a leaf with fewer tokens.

use std::collections::HashMap;

use crate::graph::PAGE;

/// A node's number. It may be used again after the node is gone.
pub(super) type NodeId = u32;

/// The hash of the empty prefix.
const ROOT: u64 = 0xcbf2_9ce4_8422_2325;

/// What one page holds.
#[derive(Debug)]
pub(super) struct Node {
    pub parent: Option<NodeId>,
    pub children: Vec<NodeId>,
    pub tokens: Box<[u32]>,
    /// Its page of full layers.
    pub full: u32,
    /// Its page of windowed layers, while there is one.
    pub windowed: Option<u32>,
    hash: u64,
}

/// The tree.
#[derive(Debug, Default)]
pub(super) struct Index {
    nodes: Vec<Option<Node>>,
    unused: Vec<NodeId>,
    /// First pages of prefixes.
    roots: Vec<NodeId>,
    /// Whole pages by their hash.
    by_hash: HashMap<u64, Vec<NodeId>>,
}

/// A step of FNV-1a on whole words, with a final mix so that neighbours spread.
fn chain(parent: u64, tokens: &[u32]) -> u64 {
    let mut hash = parent;
    for t in tokens {
        hash = (hash ^ u64::from(*t)).wrapping_mul(0x0000_0100_0000_01b3);
        hash ^= hash >> 29;
    }
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Index {
    /// A node that is there.
    ///
    /// # Panics
    /// If it is not: a fault of this room.
    pub fn node(&self, id: NodeId) -> &Node {
        self.nodes[id as usize].as_ref().expect("the node is there")
    }

    /// The same, to change its pages.
    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        self.nodes[id as usize].as_mut().expect("the node is there")
    }

    /// Nodes there are.
    pub fn len(&self) -> usize {
        self.nodes.len() - self.unused.len()
    }

    fn children(&self, parent: Option<NodeId>) -> &[NodeId] {
        parent.map_or(&self.roots, |p| &self.node(p).children)
    }

    fn hash_of(&self, parent: Option<NodeId>, tokens: &[u32]) -> u64 {
        chain(parent.map_or(ROOT, |p| self.node(p).hash), tokens)
    }

    /// The child of `parent` that holds exactly these [`PAGE`] tokens.
    pub fn find(&self, parent: Option<NodeId>, tokens: &[u32]) -> Option<NodeId> {
        let same = self.by_hash.get(&self.hash_of(parent, tokens))?;
        let found = same.iter().find(|&&id| {
            let node = self.node(id);
            node.parent == parent && *node.tokens == *tokens
        });
        found.copied()
    }

    /// The child of `parent` that shares the most first tokens with `tokens`, and how many; `None` if none does.
    pub fn longest(&self, parent: Option<NodeId>, tokens: &[u32]) -> Option<(NodeId, usize)> {
        let shared = |id: &NodeId| {
            let own = &self.node(*id).tokens;
            own.iter().zip(tokens).take_while(|(a, b)| a == b).count()
        };
        let best = self.children(parent).iter().map(|id| (*id, shared(id)));
        best.max_by_key(|(_, n)| *n).filter(|(_, n)| *n > 0)
    }

    /// A new child of `parent`. It must not be there yet.
    pub fn insert(
        &mut self,
        parent: Option<NodeId>,
        tokens: &[u32],
        full: u32,
        windowed: Option<u32>,
    ) -> NodeId {
        let hash = self.hash_of(parent, tokens);
        let node = Node {
            parent,
            children: Vec::new(),
            tokens: tokens.into(),
            full,
            windowed,
            hash,
        };
        let id = match self.unused.pop() {
            Some(id) => {
                self.nodes[id as usize] = Some(node);
                id
            }
            None => {
                self.nodes.push(Some(node));
                self.nodes.len() as NodeId - 1
            }
        };
        if tokens.len() == PAGE {
            self.by_hash.entry(hash).or_default().push(id);
        }
        match parent {
            None => self.roots.push(id),
            Some(p) => self.node_mut(p).children.push(id),
        }
        id
    }

    /// Takes a node without children out.
    pub fn remove(&mut self, id: NodeId) -> Node {
        let node = self.nodes[id as usize].take().expect("the node is there");
        debug_assert!(node.children.is_empty(), "children go before their parent");
        self.unused.push(id);
        if node.tokens.len() == PAGE
            && let Some(same) = self.by_hash.get_mut(&node.hash)
        {
            same.retain(|other| *other != id);
            if same.is_empty() {
                self.by_hash.remove(&node.hash);
            }
        }
        let siblings = match node.parent {
            None => &mut self.roots,
            Some(p) => &mut self.node_mut(p).children,
        };
        siblings.retain(|other| *other != id);
        node
    }
}
