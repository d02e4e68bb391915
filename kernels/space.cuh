// Addresses of the positions of a convolution of one tap, or of one whose outputs all have the same number of products.
// streaming_conv.cu numbers the positions of all axes through.
#pragma once
#include "division.cuh"

// The offsets of a position, in channel 0 and row 0 of a group.
struct Place {
    int64 input, out;
};

// All strides are in elements.
struct Space {
    int64 first;  // offset of the input of the first product of the first output
    int64 input_batch, input_group, input_channel, input_axis[3];
    int64 out_batch, out_group, out_row, out_axis[3];
    int64 sizes[2], size;  // outputs along y and x, and over all axes
    int64 reciprocals[3];  // long reciprocals of these sizes
    int64 scattered;       // 1 if the axes cannot be merged; else the last axis stands for all

    // Returns the offsets of position `rest` of a sample, and sets its coordinates.
    __device__ Place place_of(int sample, int group, int rest, int (&at)[3]) const {
        Place place = {first + scaled(sample, input_batch) + group * input_group,
                       scaled(sample, out_batch) + group * out_group};
        at[0] = at[1] = 0, at[2] = rest;
        if (scattered) {
            const int line = long_quotient(unsigned(rest), reciprocals[1]);
            at[0] = long_quotient(unsigned(line), reciprocals[0]);
            at[1] = line - at[0] * int(sizes[0]), at[2] = rest - line * int(sizes[1]);
            place.input += scaled(at[0], input_axis[0]) + scaled(at[1], input_axis[1]);
            place.out += scaled(at[0], out_axis[0]) + scaled(at[1], out_axis[1]);
        }
        return {place.input + scaled(at[2], input_axis[2]), place.out + scaled(at[2], out_axis[2])};
    }
};
