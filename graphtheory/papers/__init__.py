"""The papers: each figure or table is one value; a chapter is a folder."""
