"""The paper's second experiment: photographs with tags and concepts, 64 bits, mAP@10."""
